"""The docs name what there is: every public name, every page, every target, every command."""

from __future__ import annotations

import errno
import html
import importlib
import os
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import penstock
from penstock.cli.formats import describe
from penstock.cli.main import all_commands
from penstock.core.other_names import SUBMODULES
from penstock.formats.base.findings import finding_kinds
from penstock.formats.base.format import available

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs"))
licences = importlib.import_module("licences")
notebooks = importlib.import_module("notebooks")
page_outputs = importlib.import_module("page_outputs")
tables = importlib.import_module("tables")
# Pages of packages are seen through the links to their folders, such as `docs/chess`.
OF_SITE = sorted({*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").glob("*/*.md")})
PAGES = [*OF_SITE, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_the_reference_has_every_public_name_once() -> None:
    pages = "\n".join(page.read_text("utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    documented = re.findall(r"^::: penstock\.(\S+)$", pages, re.MULTILINE)
    names = set(penstock.__all__) - set(SUBMODULES)
    names |= {f"{submodule}.{name}" for submodule in SUBMODULES for name in getattr(penstock, submodule).__all__}
    assert names - set(documented) == set()
    assert [name for name in documented if "." not in name and name not in names] == []
    assert len(documented) == len(set(documented))


def test_the_first_page_of_the_reference_has_the_whole_api_on_one_screen() -> None:
    table = text("docs/reference/index.md").partition("\n## ")[0]
    assert set(penstock.__all__) - set(re.findall(r"`penstock\.(\w+)", table)) == set()
    assert table.count("\n") <= 45
    methods = re.findall(r"^\| methods of `(\w+)` \| (.+) \|$", table, re.MULTILINE)
    assert [name for name, _ in methods] == ["EpisodeDataset", "MapDataset", "Loader", "Replay"]
    for name, listed in methods:
        missing = set(re.findall(r"`(\w+)`", listed)) - set(dir(getattr(penstock, name)))
        assert missing == set(), name


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"^ +- (?:.+: )?(\S+\.md)$", text("mkdocs.yml"), re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in OF_SITE)


def test_the_page_of_licences_says_what_the_packages_say() -> None:
    """`python docs/licences.py` writes the tables anew."""
    assert licences.rendered(text("docs/licences.md")) == text("docs/licences.md"), "run: python docs/licences.py"
    listed = {match["name"]: match["licence"] for match in licences.ROW.finditer(text("docs/licences.md"))}
    assert "unknown" not in listed.values()
    assert {name for table in licences.requirements().values() for name in table} <= listed.keys()


def test_nothing_under_the_gpl_is_in_all() -> None:
    listed = {match["name"]: match["licence"] for match in licences.ROW.finditer(text("docs/licences.md"))}
    copyleft = {name for name, licence in listed.items() if licence.startswith("GPL")}
    assert copyleft == {"ale-py", "chess"}
    assert not copyleft & licences.of_all()
    named = [
        name
        for name in copyleft
        if not re.search(rf"{name}.*GPL", text("docs/howto/environments.md") + text("docs/chess/tensors.md"))
    ]
    assert named == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_fences_and_targets_of_a_page(page: Path) -> None:
    """Links lead somewhere, code is run or plainly none, and targets of `make` exist."""
    text_of_page = page.read_text("utf-8")
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text_of_page)
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not Path(os.path.normpath(page.parent / target)).exists()] == []
    languages = set(re.findall(r"^```(.*)$", text_of_page, re.MULTILINE)) - {""}
    assert languages <= {"python", "console", "text", "toml", "json", "yaml"}  # a test below reads the YAML
    known = set(re.findall(r"^([a-z]+):", text("Makefile"), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z]+)(?=`|\s+#)", text_of_page, re.MULTILINE)) <= known


def test_messages_that_have_an_answer_are_messages_of_penstock() -> None:
    """The page names parts of messages, each of which stands in one line of the sources."""
    messages = re.findall(r"^\| `(.+?)` \|", text("docs/howto/troubleshooting.md"), re.MULTILINE)
    sources = "\n".join(file.read_text("utf-8") for file in (ROOT / "src").rglob("*.py"))
    system = {os.strerror(errno.ENOSPC)}
    assert len(messages) > 10
    # `EpisodeDataset has no 'loader'` is `... has no {name!r}` in the sources.
    parts = [re.sub(r"^EpisodeDataset (has no ')loader'$", r"\1", each) for each in messages if each not in system]
    assert [part for part in parts if part.rstrip("'") not in sources] == []


def test_the_command_page_has_every_command() -> None:
    assert [name for name in all_commands() if f"`penstock {name}" not in text("docs/reference/cli.md")] == []


def rows_of(table: str) -> dict[str, list[str]]:
    """The cells of the rows that begin with the name of a format, by name."""
    rows = (line[1:-1].split("|") for line in table.splitlines() if line.startswith("| `"))
    return {name.split("`")[1]: [cell.strip() for cell in cells] for name, *cells in rows}


def test_the_site_has_a_row_for_every_format() -> None:
    page = text("docs/formats/index.md")
    first = page.partition("\n## ")[0]  # a later table is about conversions
    rows = rows_of(tables.filled(first))
    assert page.count("<!-- formats -->") == 1
    assert list(rows) == list(available())
    assert rows["native"][1:] == ["yes", "no", "no", "`video`"]
    assert rows["columns"][0].endswith("](columns.md)")
    assert tables.filled("no marker") == "no marker"


def test_the_site_has_a_row_for_every_finding() -> None:
    rows = rows_of(tables.filled(text("docs/reference/findings.md")))
    assert list(rows) == list(finding_kinds())
    assert {len(cells) for cells in rows.values()} == {5}


def test_the_readme_says_what_formats_can_do() -> None:
    rows = rows_of(text("README.md"))
    assert len(rows) >= 6
    for name, cells in rows.items():
        found = describe(available()[name])
        assert [bool(cell) for cell in cells] == [True, found["writes"], found["appends"]], name


def test_formats_name_extras_that_exist() -> None:
    extras = tomllib.loads(text("pyproject.toml"))["project"]["optional-dependencies"]
    assert {extra for entry in available().values() for extra in entry.extras} <= extras.keys()


def test_the_install_page_has_every_extra() -> None:
    extras = tomllib.loads(text("pyproject.toml"))["project"]["optional-dependencies"]
    assert tables.EXTRAS.keys() == extras.keys()
    page = text("docs/start/install.md")
    assert page.count("<!-- extras -->") == 1
    rows = rows_of(tables.filled(page))
    assert extras.keys() <= rows.keys()
    assert {file.parent.name for file in ROOT.glob("packages/*/pyproject.toml")} <= rows.keys()
    assert rows["hf"][1] == "`fsspec`, `huggingface_hub`"


def test_ci_and_make_name_no_host() -> None:
    for name in ("Makefile", ".ci/run", "constraints.txt", "pyproject.toml"):
        assert "://" not in text(name)


def test_versions_are_pinned_and_torch_is_the_makefiles() -> None:
    lines = [line for line in text("constraints.txt").splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[\w.]+", line)] == []
    (torch,) = [line for line in lines if line.startswith("torch==")]
    assert f"TORCH := {torch}\n" in text("Makefile")


def test_every_requirement_is_pinned() -> None:
    project = tomllib.loads(text("pyproject.toml"))
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for group in (*project["project"]["optional-dependencies"].values(), *project["dependency-groups"].values()):
        asked += group
    projects = ROOT.glob("packages/*/pyproject.toml")
    packages = {file.parent.name: tomllib.loads(file.read_text("utf-8")) for file in projects}
    asked += [line for each in packages.values() for line in each["project"]["dependencies"]]
    names = {canonicalize_name(Requirement(line).name) for line in asked} - {"penstock", *packages}
    pinned = {canonicalize_name(line.split("==")[0]) for line in text("constraints.txt").splitlines()}
    assert names - pinned == set()


def test_kubernetes_gives_each_pod_its_number() -> None:
    """The manifests of the pages are indexed Jobs, whose number of pods is the number that the program gets."""
    pages = ("docs/howto/clusters.md", "docs/howto/distributed.md")
    blocks = [block for page in pages for block in re.findall(r"```yaml\n(.*?)```", text(page), re.DOTALL)]
    jobs = [each for block in blocks for each in yaml.safe_load_all(block) if each["kind"] == "Job"]
    work, train = (job["spec"]["template"]["spec"]["containers"][0] for job in jobs)
    assert [job["spec"]["completionMode"] for job in jobs] == ["Indexed", "Indexed"]
    assert work["command"][-2:] == ["--count", str(jobs[0]["spec"]["completions"])]
    assert "--index" not in work["command"]  # `penstock work` takes JOB_COMPLETION_INDEX, which an indexed Job sets
    variables = {each["name"]: each for each in train["env"]}
    assert variables["WORLD_SIZE"]["value"] == str(jobs[1]["spec"]["completions"])
    field = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert variables["RANK"]["valueFrom"]["fieldRef"]["fieldPath"] == field


def test_outputs_are_of_blocks_that_pages_have() -> None:
    """`make outputs` writes them; the tests of a page compare what its blocks print."""
    pages = [*OF_SITE, *ROOT.glob("packages/*/README.md"), ROOT / "README.md"]
    files = {page_outputs.file_of(page): page for page in pages}
    kept = set(page_outputs.FOLDER.rglob("*.json"))
    assert kept - files.keys() == set()
    for file in kept:
        known = {block.key for block in page_outputs.blocks(files[file].read_text("utf-8"))}
        assert page_outputs.load(files[file]).keys() - known == set(), f"run: make outputs ({file.name})"


@pytest.mark.parametrize(
    ("kept", "found", "equal"),
    [
        ("3 episodes in 1.2 s", "3 episodes in  14 ms", True),
        ("3 episodes in 1.2 s", "4 episodes in 1.2 s", False),
        ("mean 0.3333", "mean 0.33331", True),
        ("mean 0.3333", "mean 0.34", False),
        ("│ 12.8 MB ─── │", "│ 9 kB ─ │", True),
        ("digest 7692ee0bdb532dac", "digest 0123456789abcdef", True),
        ("one", "one\ntwo", False),
        ("1.0", "1.0 1.0", False),
    ],
)
def test_outputs_are_equal_but_for_times_sizes_and_digits(kept: str, found: str, equal: bool) -> None:
    assert page_outputs.same(kept, found) == equal


def test_the_picture_of_info_shows_what_the_command_of_the_readme_prints() -> None:
    """`make outputs` draws it."""
    picture = text("docs/pictures/info.svg")
    drawn = html.unescape("".join(re.findall(r"<text [^>]*>([^<]*)</text>", picture)))
    printed = [text for texts in page_outputs.load(ROOT / "README.md").values() for text in texts]
    assert any(
        page_outputs.same("".join(drawn.split()), "".join(f"$penstockinfocartpole{text}".split())) for text in printed
    )


def test_outputs_are_shown_after_code_and_after_each_command() -> None:
    page = (
        "```python\nprint(1)\n```\n\n<!-- output varies -->\n```console\n$ penstock a\n$ pip\n$ penstock b\n```\nend\n"
    )
    python, console = page_outputs.blocks(page)
    assert (python.varies, console.varies, console.commands) == (False, True, ["$ penstock a", "$ penstock b"])
    shown = page_outputs.with_outputs(page, {python.key: ["1"], console.key: ["A", "B\nB"]})
    assert "\n1\n```\n" in shown
    assert "```console\n$ penstock a\nA\n$ pip\n$ penstock b\nB\nB\n```\nend\n" in shown
    assert "varies" not in shown
    shown = "```python\nprint(1)\n```\n\n```text\n1\n```\n"  # the page itself has the output
    assert page_outputs.with_outputs(shown, {}) == shown
    twice = [block.key for block in page_outputs.blocks("```python\n1\n```\n" * 2)]
    assert len(set(twice)) == 2


@pytest.mark.parametrize("page", notebooks.PAGES)
def test_notebooks_have_the_code_and_the_outputs_of_their_page(page: str) -> None:
    import nbformat

    notebook = notebooks.notebook(ROOT / "docs" / page)
    nbformat.validate(notebook)
    sources = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    blocks = list(page_outputs.blocks(text(f"docs/{page}")))
    assert [source for source in sources if source[0] != "!"] == [
        block.code.rstrip("\n") for block in blocks if block.language == "python"
    ]
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    kept = page_outputs.load(ROOT / "docs" / page)
    texts = [kept.get(block.key, [])[: 1 if block.language == "python" else None] for block in blocks]
    assert len(outputs) == sum(text != "" for each in texts for text in each)
    assert "](" not in "".join(cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "markdown")
