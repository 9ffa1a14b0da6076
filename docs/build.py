"""Build the site, in `.build/site`.

    python docs/build.py

Pages with their tables, outputs, weights and notebooks go to `.build/pages`. A generator (`mkdocs.yml` is its
configuration) makes HTML of these plain files, and nothing else depends on it, so that another one can take its place.
`llms.txt` and the addresses of old pages are added to the HTML.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import notebooks
import page_outputs
import tables
import yaml
from described import with_names

ROOT = Path(__file__).parents[1]
DOCS, STAGED, SITE = ROOT / "docs", ROOT / ".build" / "pages", ROOT / ".build" / "site"
LEFT = {"overrides", "outputs", "__pycache__"}  # folders of docs that are no part of the site
SUFFIXES = {".css", ".js", ".svg", ".png"}  # of files that are copied

# How far up the search puts a page: tasks come before lists of names or figures.
WEIGHTS = {"howto": 6.0, "start": 4.0, "concepts": 3.0, "formats": 2.0, "reference": 0.2}
LOW = ("architecture", "benchmarks", "decisions", "licences", "index", "reference", "design")  # by file

# Pages that have moved, without suffix: their old address leads to the new one.
MOVED = {
    "compat/il_representations": "imitation/il_representations",
    "compat/index": "mirrors/index",
    "compat/l5kit": "driving/l5kit",
    "compat/lczero": "chess/lczero",
    "formats/l5kit": "driving/logs",
    "formats/lc0": "chess/lc0",
    "howto/chess": "chess/tensors",
    "howto/driving": "driving/driving",
    "howto/imitation": "imitation/imitation",
    "howto/live": "live/live",
    "howto/pairs": "imitation/pairs",
    "howto/rasters": "driving/rasters",
    "howto/ray": "cluster/ray",
    "howto/self_play": "chess/self_play",
    "howto/viewing": "studio/viewing",
    "reference/chess": "chess/reference",
    "reference/driving": "driving/reference",
    "reference/live": "live/reference",
    "reference/rasters": "driving/rasterizers",
    "reference/simulation": "cluster/reference",
}
LEADS = """<!doctype html>
<meta charset="utf-8">
<title>This page has moved</title>
<script>location.replace("{0}" + location.hash)</script>
<meta http-equiv="refresh" content="1; url={0}">
<a href="{0}">This page has moved.</a>
"""


def files() -> Iterator[Path]:
    """Files of the site, relative to `docs`. Pages of packages are behind links, such as `docs/chess`."""
    for folder, folders, names in os.walk(DOCS, followlinks=True):
        folders[:] = sorted(set(folders) - LEFT)
        yield from (Path(folder, name).relative_to(DOCS) for name in sorted(names))


def shown(name: Path) -> str:
    """The text of a page as the site shows it, without the metadata at its top."""
    page = DOCS / name
    text = page_outputs.with_outputs(page.read_text("utf-8"), page_outputs.load(page))
    if name.as_posix() in notebooks.PAGES:
        notebook = os.path.relpath(notebooks.file_of(name), name.parent)
        link = f"[This page as a notebook]({notebook}){{ .notebook download }}"
        text = re.sub(r"^(# .+\n)", rf"\1\n{link}\n", text, count=1, flags=re.MULTILINE)
    return tables.filled(text)


def weighed(name: Path, text: str) -> str:
    """The page with its weight for the search among the metadata."""
    folder = name.parent.as_posix()
    weight = 0.2 if name.stem in LOW else WEIGHTS.get(folder, 1.0)
    inner, rest = re.fullmatch(r"(?:---\n(.*?)---\n)?(.*)", text, re.DOTALL).groups(default="")  # pyright: ignore[reportOptionalMemberAccess]
    return f"---\n{inner}search: {{boost: {weight}}}\n---\n{rest}"


def stage() -> None:
    """Write the pages and their notebooks, and copy pictures, styles and scripts."""
    shutil.rmtree(STAGED, ignore_errors=True)
    for name in files():
        target = STAGED / name
        if name.suffix == ".md":
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(weighed(name, shown(name)), "utf-8")
        elif name.suffix in SUFFIXES:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(DOCS / name, target)
    for page in notebooks.PAGES:
        target = STAGED / notebooks.file_of(Path(page))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(notebooks.notebook(DOCS / page), indent=1, ensure_ascii=False), "utf-8")


def generate() -> None:
    """Make HTML of the pages. A warning is an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=True)


class _Settings(yaml.SafeLoader):
    """Reads the configuration of the generator, whose tags are left empty."""


_Settings.add_constructor("!ENV", lambda *_: None)


def navigation() -> Any:
    """The configuration's `site_description`, and the sections, titles and pages of its `nav`."""
    settings = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), _Settings)
    return settings["site_description"], settings["nav"]


def entries(listed: Any, title: str = "") -> Iterator[tuple[str, str]]:
    """The title and the page of each entry of a navigation, in order."""
    if isinstance(listed, str):
        yield title, listed
    elif isinstance(listed, dict):
        for name, inner in listed.items():
            yield from entries(inner, name)
    else:
        for inner in listed:
            yield from entries(inner, title)


def first_sentence(text: str) -> str:
    """The first sentence of a page below its title."""
    text = re.sub(r"\A---\n.*?---\n|^```.*?^```\n|<[^>]+>", "", text, flags=re.DOTALL | re.MULTILINE)
    prose = (each.strip() for each in text.split("\n\n") if re.match(r"\s*[`\w]", each))
    words = " ".join(re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", next(prose, "")).split())
    return re.split(r"(?<=[.?!]) ", words)[0].removesuffix(":")


def write_texts() -> None:
    """Write the pages as Markdown for assistants: `llms.txt` lists them, `llms-full.txt` has all of them."""
    description, listed = navigation()
    index, whole = [f"# penstock\n\n> {description}\n"], []
    for section in listed:
        index.append(f"\n## {next(iter(section))}\n\n")
        for title, page in entries(section):
            text = with_names(re.sub(r"\A---\n.*?---\n", "", shown(Path(page)), flags=re.DOTALL))
            text = re.sub(r"^``` \{ \.text.*\}$", "```text", text, flags=re.MULTILINE)
            (SITE / page).write_text(text, "utf-8")
            whole.append(f"<!-- {page} -->\n\n{text.strip()}\n\n")
            index.append(f"- [{title}]({page}): {first_sentence((DOCS / page).read_text('utf-8'))}\n")
    index.append("\n## All of it\n\n- [llms-full.txt](llms-full.txt): all pages in one file\n")
    (SITE / "llms.txt").write_text("".join(index), "utf-8")
    (SITE / "llms-full.txt").write_text("".join(whole), "utf-8")


def lead_on() -> None:
    """Write a page at each address that a page once had."""
    for old, new in MOVED.items():
        target = SITE / f"{old}.html"
        if target.exists() or not (SITE / f"{new}.html").exists():
            raise SystemExit(f"expected {old} to have moved to {new}, got other pages: mend MOVED in docs/build.py")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(LEADS.format(os.path.relpath(f"{new}.html", Path(old).parent)), "utf-8")


if __name__ == "__main__":
    stage()
    generate()
    write_texts()
    lead_on()
