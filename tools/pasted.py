"""Write the Python examples of a page to one file, in their order: `python tools/pasted.py CONTRIBUTING.md`.

Prints the path of the file, which is in `out`: pyright passes over folders such as `.build`. `make check` gives it to
the type checker, so that what a reader pastes passes the rules that the project has for itself.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def pasted(page: Path) -> str:
    """Return the code of every Python example of a page. Raises `ValueError` if the page has none."""
    examples = FENCE.findall(page.read_text("utf-8"))
    if not examples:
        raise ValueError(f"expected examples in {page}, got none")
    return "\n\n".join(examples)


if __name__ == "__main__":
    page = ROOT / sys.argv[1]
    out = ROOT / "out" / f"{page.stem.lower()}_examples.py"
    out.parent.mkdir(exist_ok=True)
    out.write_text(pasted(page), "utf-8")
    print(out)
