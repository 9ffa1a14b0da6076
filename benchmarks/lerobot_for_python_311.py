"""Let the LeRobot 0.6 of an environment run with Python 3.11.

    .build/lerobot/bin/python benchmarks/lerobot_for_python_311.py

LeRobot 0.6 asks for Python 3.12 because of the statements `type NAME = ...` and of type parameters in brackets. They
are written here as Python 3.11 has them. Nothing else changes.
"""

from __future__ import annotations

import ast
import re
import sysconfig
from pathlib import Path

ALIAS = re.compile(r"^type (\w+) = ", re.MULTILINE)
GENERIC = re.compile(r"^( *)(class|def) (\w+)\[([^\]]+)\](?:\(([\w., \[\]]*)\))?", re.MULTILINE)


def for_python_311(source: str) -> str:
    """The source without statements of PEP 695."""
    names: set[str] = set()

    def written(match: re.Match[str]) -> str:
        indent, kind, name, parameters, arguments = match.groups()
        own = [each.split(":")[0].strip() for each in parameters.split(",")]
        names.update(own)
        if kind == "def":
            return f"{indent}def {name}" + ("" if arguments is None else f"({arguments})")
        bases = ", ".join([*([arguments] if arguments else []), f"Generic[{', '.join(own)}]"])
        return f"{indent}class {name}({bases})"

    source = GENERIC.sub(written, ALIAS.sub(r"\1 = ", source))
    if not names:
        return source
    lines = source.splitlines(keepends=True)
    imports = [each for each in ast.parse(source).body if isinstance(each, ast.Import | ast.ImportFrom)]
    last = max((each.end_lineno or 0 for each in imports), default=0)
    variables = [f'{name} = TypeVar("{name}")\n' for name in sorted(names)]
    return "".join([*lines[:last], "from typing import Generic, TypeVar\n", *variables, *lines[last:]])


def main() -> None:
    for path in (Path(sysconfig.get_path("purelib")) / "lerobot").rglob("*.py"):
        source = path.read_text()
        changed = for_python_311(source)
        if changed != source:
            path.write_text(changed)
            print(path)


if __name__ == "__main__":
    main()
