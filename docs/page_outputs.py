"""Outputs of the code of pages: kept in `docs/outputs`, compared by the tests, shown by the site.

    make outputs

runs the pages and writes their outputs again. This script removes the outputs of blocks that are gone.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "outputs"
HOME = "/home/me"  # in the place of the user's folder, and of that in which a page runs
COLUMNS = "88"  # of the terminal of commands
# Before a block whose output differs from run to run: the output of some run is shown, and not compared.
VARIES = "<!-- output varies -->"
FENCED = re.compile(r"^```(?P<language>python|console)\n(?P<code>.*?)^```\n", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"\n?```text\n(?P<text>.*?)^```\n", re.MULTILINE | re.DOTALL)

# Dates, digests, pictures, and times, speeds and sizes with their unit: they differ from run to run.
VARYING = re.compile(
    r"base64,[\w+/=]+|"
    r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?(?:\.\d+)?Z?)?"
    r"|\b0x[0-9a-f]+\b|\b[0-9a-f]{12,}\b"
    r"|\d[\d.,]*\s?(?:(?:[kMG]i?)?B|[kMG])?/s\b|\d[\d.,]*\s?(?:ns|µs|us|ms|s|min|[kMG]i?B|B)\b"
)
NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?|-?\d+e[-+]?\d+")
BLANK = re.compile(r"[\s─━═]+")
CLOSE = 2e-3  # relative: sums of floats differ a little between processors


@dataclass(frozen=True)
class Block:
    """A block of code of a page: its place, its key among the outputs, and whether each run has another output."""

    language: str
    code: str
    key: str
    start: int
    end: int
    varies: bool
    shown: re.Match[str] | None  # the block of text after it, which shows the output in the page itself

    @property
    def commands(self) -> list[str]:
        """The lines of a console block that are run."""
        return [line for line in self.code.splitlines() if line.startswith("$ penstock")]


def blocks(page: str) -> Iterator[Block]:
    """The blocks of Python and of the console in the text of a page."""
    seen: Counter[str] = Counter()
    for match in FENCED.finditer(page):
        digest = hashlib.sha256(match["code"].encode()).hexdigest()[:12]
        seen[digest] += 1
        key = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
        varies = page[: match.start()].rstrip().endswith(VARIES)
        shown = SHOWN.match(page, match.end())
        yield Block(match["language"], match["code"], key, match.start(), match.end(), varies, shown)


def file_of(page: Path) -> Path:
    """The file with the outputs of a page of the repository."""
    name = page.relative_to(ROOT)
    inner = name.relative_to("docs") if name.parts[0] == "docs" else name
    return FOLDER / inner.with_suffix(".json")


def load(page: Path) -> dict[str, list[str]]:
    """The outputs of a page by key: one a command, or of Python the printed text and the HTML of a notebook."""
    file = file_of(page)
    if not file.exists():
        return {}
    kept = json.loads(file.read_text("utf-8"))
    return {key: ["\n".join(lines) for lines in texts] for key, texts in kept.items()}


def save(page: Path, outputs: dict[str, list[str]]) -> None:
    """Write the outputs of a page, or remove its file where there is none."""
    file = file_of(page)
    if outputs:
        file.parent.mkdir(parents=True, exist_ok=True)
        kept = {key: [text.splitlines() for text in texts] for key, texts in outputs.items()}
        file.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")
    else:
        file.unlink(missing_ok=True)


def prune() -> None:
    """Remove the outputs of blocks and pages that are gone."""
    for file in FOLDER.rglob("*.json"):
        name = file.relative_to(FOLDER).with_suffix(".md")
        page = next((each for each in (ROOT / "docs" / name, ROOT / name) if each.exists()), None)
        if page is None:
            file.unlink()
        else:
            keys = {block.key for block in blocks(page.read_text("utf-8"))}
            save(page, {key: texts for key, texts in load(page).items() if key in keys})


def cleaned(text: str, folder: str) -> str:
    """An output as it is kept: without folders of this machine, and spaces at the ends of lines."""
    cache = os.environ.get("PENSTOCK_CACHE", "")  # tests have one of their own
    known = {cache: f"{HOME}/.cache/penstock", folder: HOME, str(Path.home()): HOME}
    for place, shown in known.items():
        text = text.replace(place, shown) if place else text
    lines = text.splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def same(kept: str, found: str) -> bool:
    """Whether outputs of two runs are equal, but for varying parts and the last digits of floats."""
    texts = [BLANK.sub(" ", VARYING.sub("#", text)).strip() for text in (kept, found)]
    words = [NUMBER.split(text) for text in texts]
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in texts]
    return words[0] == words[1] and all(
        math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-9) for one, other in zip(*numbers, strict=True)
    )


def with_outputs(page: str, outputs: dict[str, list[str]]) -> str:
    """The text of a page with outputs after its blocks, and after each command of a console block."""
    pieces: list[str] = []
    end = 0
    for block in blocks(page):
        pieces.append(page[end : block.start])
        texts = [] if block.shown else outputs.get(block.key, [])
        if block.language == "console":
            language = "console" if re.search("^\\$ ", block.code, re.MULTILINE) else "bash"  # no line is an output
            pieces.append(f"```{language}\n{_conversation(block, texts)}```\n")
        else:
            pieces += [page[block.start : block.end], *_after(texts)]
        end = block.end
    return "".join([*pieces, page[end:]]).replace(f"{VARIES}\n", "")


def _conversation(block: Block, texts: list[str]) -> str:
    """The lines of a console block, each command with its output."""
    waiting, lines = iter(texts), list[str]()
    for line in block.code.splitlines():
        lines.append(line)
        if line.startswith("$ penstock") and (text := next(waiting, "")):
            lines += text.splitlines()
    return "".join(f"{line}\n" for line in lines)


def _after(texts: list[str]) -> Iterator[str]:
    """The output after a block of Python: an object with HTML, or else the printed text."""
    if len(texts) == 2:
        yield f'\n<div class="drawn">{" ".join(texts[1].split())}</div>\n'
    elif texts:
        yield f"\n``` {{ .text .output .no-copy }}\n{texts[0]}\n```\n"


if __name__ == "__main__":
    prune()
