"""Check plain English and print the measures of readability as one table: `python tools/measures.py`.

It runs `tools/plain.py`, reads the sources of all distributions as text, and starts Python to time an import. Findings
of `tools/plain.py`, too many retired names, too many `Any` in kernels and crowded lines fail it.
`tests/test_architecture.py` has the other limits. Cost: 3 to 5 s.
"""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DISTRIBUTIONS = {"penstock": ROOT / "src"} | {each.name: each / "src" for each in sorted(ROOT.glob("packages/*"))}
GOALS = {"penstock": "75,000 in 480", "all": "135,000"}  # lines, files
PAGES = ("docs/**/*.md", "packages/*/docs/**/*.md", "packages/*/README.md", "README.md", "CHANGELOG.md")
MOST_WORDS = 55_000  # of all pages, with tables and code
SHARED = 6  # equal lines that make two files a pair
WIDEST = 8  # files of one run of lines above which it is too common to count
IMPORTS = 3  # the fastest of so many imports counts
# Names that say what was done to a value, or where, but not what it is. `docs/decisions.md` says which are better.
RETIRED = {"at", "checked", "found", "held", "joined", "made", "told"}
MOST_RETIRED = 12
MOST_ANY = 60  # in all kernels: numba's and LLVM's objects have no types
LONG_FUNCTION = 60  # lines of a function, without its docstring, above which it counts as long
LONG_FILE = 500
FEW_WORDS = 4  # a docstring of so many words or fewer says no more than the name


@dataclass(frozen=True)
class FileMeasures:
    """Measures of one file.

    Args:
        lines: All lines.
        code: Lines of code, without comments and blank lines.
        comments: Lines with a comment, and lines of the opening comment of the module.
        texts: Lines of docstrings.
        anys: Uses of `Any`.
        retired: Assignments and arguments with a name in `RETIRED`, as `line: name`.
        crowded: Statements that assign three or more values to as many names.
        short_texts: Docstrings of at most `FEW_WORDS` words.
        functions: Lines of each function, without its docstring, by name.
        classes: Names of public classes.
        runs: Digests of `SHARED` lines of code that follow each other, without imports and lines of punctuation.
    """

    lines: int
    code: int
    comments: int
    texts: int
    anys: int
    retired: tuple[str, ...]
    crowded: int
    short_texts: int
    functions: dict[str, int]
    classes: tuple[str, ...]
    runs: frozenset[bytes]


def measured(source: str) -> FileMeasures:
    """Measure one file.

    Args:
        source: Its text.
    """
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    texts: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            texts.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    documented = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    functions = [node for node in documented if not isinstance(node, ast.ClassDef)]
    retired = [f"{getattr(node, 'lineno', 0)}: {name}" for node in nodes if (name := bound_name(node)) in RETIRED]
    opening = 0
    if ast.get_docstring(tree) is not None:
        opening = tree.body[0].end_lineno or 0
    lines = source.splitlines()
    rest = [line.strip() for number, line in enumerate(lines, 1) if number not in texts and line.strip()]
    code = [line for line in rest if not line.startswith("#")]
    return FileMeasures(
        lines=len(lines),
        code=len(code),
        comments=sum(line.startswith("#") or "  # " in line for line in rest) + opening,
        texts=len(texts),
        anys=sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes),
        retired=tuple(retired),
        crowded=sum(map(is_crowded, nodes)),
        short_texts=sum(0 < len((ast.get_docstring(node) or "").split()) <= FEW_WORDS for node in documented),
        functions={f"{node.name}:{node.lineno}": function_lines(node, texts) for node in functions},
        classes=tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_"),
        runs=runs_of(code),
    )


def function_lines(node: ast.stmt, texts: Container[int]) -> int:
    """Return the lines of a function, without docstrings.

    Args:
        node: Its definition.
        texts: Lines of docstrings of the file.
    """
    return sum(line not in texts for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))


def is_crowded(node: ast.AST) -> bool:
    """Return whether a statement assigns three or more unrelated values to as many names.

    An exchange of values, and the items of one object, are related.

    Args:
        node: Any node.
    """
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple) or len(node.value.elts) < 3:
        return False
    values = node.value.elts
    names = [element for target in node.targets if isinstance(target, ast.Tuple) for element in target.elts]
    exchanged = {ast.unparse(name) for name in names} == {ast.unparse(value) for value in values}
    owners = {ast.unparse(v.value) if isinstance(v, ast.Subscript) else f"{n} is no item" for n, v in enumerate(values)}
    return bool(names) and not exchanged and len(owners) > 1


def bound_name(node: ast.AST) -> str | None:
    """Return the name that a node assigns or that it is an argument of, None for other nodes.

    Args:
        node: Any node.
    """
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return node.arg if isinstance(node, ast.arg) else None


def runs_of(code: Iterable[str]) -> frozenset[bytes]:
    """Return a digest of each run of `SHARED` lines.

    Args:
        code: Lines of code, stripped.
    """
    lines = [line for line in code if re.search(r"\w", line) and not line.startswith(("import ", "from "))]
    runs = ("\n".join(lines[i : i + SHARED]).encode() for i in range(len(lines) - SHARED + 1))
    return frozenset(hashlib.blake2b(run, digest_size=8).digest() for run in runs)


def pairs(files: dict[str, FileMeasures]) -> set[tuple[str, str]]:
    """Return the pairs of files that share a run of lines.

    Args:
        files: Measures by name.
    """
    places: dict[bytes, list[str]] = defaultdict(list)
    for name in sorted(files):
        for run in files[name].runs:
            places[run].append(name)
    several = [names for names in places.values() if 2 <= len(names) <= WIDEST]
    return {(one, other) for names in several for i, one in enumerate(names) for other in names[i + 1 :]}


def import_milliseconds() -> float:
    """Return the milliseconds of `import penstock` in a new process, without the start of Python."""
    script = "import time; begin = time.perf_counter(); import penstock; print(time.perf_counter() - begin)"
    command = [sys.executable, "-c", script]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(IMPORTS)]
    return 1000 * min(map(float, runs))


def sizes(files: dict[str, FileMeasures]) -> list[tuple[str, str]]:
    """Return the lines and files of each distribution and of all, with the goals.

    Args:
        files: Measures by name.
    """
    rows: list[tuple[str, str]] = []
    for name, folder in {**DISTRIBUTIONS, "all": ROOT}.items():
        lines = [each.lines for file, each in files.items() if (ROOT / file).is_relative_to(folder)]
        goal = f"; the goal is {GOALS[name]}" if name in GOALS else ""
        rows.append((f"lines of {name}", f"{sum(lines):,} in {len(lines):,} files{goal}"))
    return rows


def words_of_pages() -> int:
    """Return the words of all pages, with tables and code, without comments and signs that stand alone, such as `|`."""
    pages = {page.resolve() for pattern in PAGES for page in ROOT.glob(pattern)}  # `docs/chess` is a link
    texts = (re.sub(r"<!--.*?-->", "", page.read_text("utf-8")) for page in pages)
    return sum(len(re.findall(r"\S*\w\S*", text)) for text in texts)


def table(files: dict[str, FileMeasures], phrases: str) -> list[tuple[str, str]]:
    """Return the name and the value of each measure.

    Args:
        files: Measures by name.
        phrases: Flagged phrases per 1,000 words, with the number of words.
    """
    longest = max(files, key=lambda name: files[name].lines)
    functions = {f"{name}:{place}": n for name, each in files.items() for place, n in each.functions.items()}
    longest_function = max(functions, key=functions.__getitem__)
    long_functions = sum(n > LONG_FUNCTION for n in functions.values())
    code, comments, texts, crowded, short_texts = (
        sum(getattr(each, kind) for each in files.values())
        for kind in ("code", "comments", "texts", "crowded", "short_texts")
    )
    retired = sum(len(each.retired) for each in files.values())
    anys = sum(each.anys for name, each in files.items() if "kernels" in Path(name).parts)
    public = Counter(
        c
        for name, each in files.items()
        if not {"l5kit", "lczero", "il_representations", "penstock_mirrors"} & set(Path(name).parts)
        for c in each.classes
    )
    readme = len((ROOT / "README.md").read_text("utf-8").splitlines())
    return [
        ("phrases per 1,000 words", f"{phrases}; the limit is 1.0"),
        ("names such as `found` and `held`", f"{retired}; the limit is {MOST_RETIRED}"),
        ("public class names used twice", f"{sum(n > 1 for n in public.values())} of {len(public):,}"),
        ("`Any` in kernels", f"{anys}; the limit is {MOST_ANY}"),
        ("lines with three assignments", f"{crowded}; the limit is 0"),
        (f"functions above {LONG_FUNCTION} lines", f"{long_functions} of {len(functions):,}"),
        ("longest function", f"{longest_function}, {functions[longest_function]} lines without its docstring"),
        (f"files above {LONG_FILE} lines", f"{sum(each.lines > LONG_FILE for each in files.values())}"),
        ("longest file", f"{longest}, {files[longest].lines} lines"),
        *sizes(files),
        ("code", f"{code:,} lines"),
        ("comments and opening comments", f"{comments:,} lines, one for {code / comments:.0f} lines of code"),
        ("docstrings", f"{texts:,} lines, {short_texts} of at most {FEW_WORDS} words"),
        (f"pairs of files with {SHARED} equal lines", f"{len(pairs(files))}"),
        ("README", f"{readme} lines; the limit is 150"),
        ("words of all pages", f"{words_of_pages():,}; the goal is {MOST_WORDS:,}"),
        ("import penstock", f"{import_milliseconds():.0f} ms"),
    ]


def broken_limits(files: dict[str, FileMeasures]) -> list[str]:
    """Return a line for each place that breaks a limit of names, of `Any` in kernels or of assignments in a line.

    Args:
        files: Measures by name.
    """
    wrong = [f"{name}: {each.crowded} lines with three assignments" for name, each in files.items() if each.crowded]
    kernels = {name: each.anys for name, each in files.items() if "kernels" in Path(name).parts and each.anys}
    if sum(kernels.values()) >= MOST_ANY:
        wrong += [f"{name}: uses `Any` {n} times" for name, n in kernels.items()]
    if sum(len(each.retired) for each in files.values()) > MOST_RETIRED:
        places = [(name, place) for name, each in files.items() for place in each.retired]
        wrong += [f"{name}:{place}: name it after its contents" for name, place in places]
    return wrong


def main() -> int:
    """Print the table, and return the status of the check of plain English."""
    begin = time.perf_counter()
    plain = [sys.executable, str(ROOT / "tools" / "plain.py")]
    with subprocess.Popen(plain, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        sources = [file for folder in DISTRIBUTIONS.values() for file in sorted(folder.rglob("*.py"))]
        files = {file.relative_to(ROOT).as_posix(): measured(file.read_text("utf-8")) for file in sources}
        printed, errors = process.communicate()
    if process.returncode:
        print(printed, errors, sep="\n", file=sys.stderr)
        return process.returncode
    _, words, _, _, _, rate, *_ = printed.splitlines()[-1].split()
    for name, value in table(files, f"{rate} of {int(words):,} words"):
        print(f"{name:36} {value}")
    print(f"{'measured in':36} {time.perf_counter() - begin:.1f} s")
    wrong = broken_limits(files)
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
