"""Draw `penstock info` of the dataset of the README as a terminal shows it: `python docs/pictures/info.py`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

ROOT = Path(__file__).parents[2]
COLUMNS = 88
COMMAND = "penstock info cartpole"
# No font is fetched from elsewhere: the letters of any font with a fixed width are put where they belong.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def first_code() -> str:
    """The first code of the README that records a dataset."""
    page = (ROOT / "README.md").read_text("utf-8")
    return next(code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "penstock.record" in code)


def main() -> None:
    """Run the code and the command in an empty folder, and draw the terminal."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", first_code()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        terminal = os.environ | {"COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
        words = [sys.executable, "-m", *COMMAND.split()]
        shown = subprocess.run(words, cwd=folder, env=terminal, check=True, stdout=subprocess.PIPE, encoding="utf-8")
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"$ {COMMAND}\n{shown.stdout.rstrip()}"))
    picture = console.export_svg(title="", theme=DIMMED_MONOKAI, code_format=FORMAT, unique_id="info")
    Path(__file__).with_suffix(".svg").write_text(picture, "utf-8")


if __name__ == "__main__":
    main()
