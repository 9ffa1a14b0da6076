"""Count turns of phrase that are not plain English: `python tools/plain.py [--list] [PATH...]`.

Reads README, docs, docstrings, comments and error messages. Prints the words, the flags and the flags per 1,000 words
of each package, and with `--list` each flag as `file:line: phrase -> advice`. Without paths it checks the whole project
and fails where a package has more than 1 flag per 1,000 words, or a file of more than 200 words has more than 5.

A flag is a place to look at. Rewrite the sentence: subject, verb, object, and the word that a reader would search for.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATHS = ("README.md", "CONTRIBUTING.md", "docs", "src", "packages")
OVERALL, FILE, SMALL = 1.0, 5.0, 200

# Regular expressions, a space for any white space, with the advice.
RULES = {
    r"whoever|nobody|whatever": "name the person or thing",
    r"those (?:that|which|of|with|where|who)|(?:that|those) of|the same of": "repeat the noun",
    r"that there (?:is|are)|(?:is|are) (?:not )?there|it is (?:that|by|in|of)": "say what exists, with a verb",
    r"as many": "give the number or name the other count",
    r"by itself|by themselves|of (?:its|their|our) own": "alone; its own",
    r"(?:the|its) begin": "start",
    r"giv(?:es|en|e) out|hands out|brought": "return, yield, load",
    r"told|held": "message, parameters; cached, kept",
    r"lies?": "is at, is stored, is",
    r"for (?:it|they|there|whoever|nobody|no) ": "start a new sentence, or: because",
    r"anew|no (?:more|later|earlier)": "again; at most, at the latest",
    r"beside|one after the other|at all": "next to, with; in order; (leave out)",
    r"how-manieth|the house|the door": "number; package layout; compatibility layer",
}
ASKED = "is|was|are|were|it|they|an?|the|has|have|comes|goes|lies|there|no|nothing|one|we|follows|stays"
WHAT = rf"(?:^|[.;:,] )[Ww]hat (?:{ASKED})"


def compiled(pattern: str) -> re.Pattern[str]:
    """Return a rule as a pattern over prose whose lines may end anywhere."""
    return re.compile(pattern.replace(" ", r"\s+"))


FLAGS = [
    (compiled(rf"\b(?:{pattern})" + ("" if pattern.endswith(" ") else r"\b")), text) for pattern, text in RULES.items()
]
FLAGS.append((compiled(WHAT + r"\b"), "ask no question: name the thing"))


@dataclass
class Counts:
    """Words and flags of a file or package; each flag is its line, phrase and advice."""

    words: int = 0
    flags: list[tuple[str, int, str, str]] = field(default_factory=list[tuple[str, int, str, str]])

    def add(self, other: Counts) -> None:
        """Add the counts of another."""
        self.words += other.words
        self.flags += other.flags

    @property
    def rate(self) -> float:
        """Flags per 1,000 words."""
        return 1000 * len(self.flags) / max(self.words, 1)


def blanked(text: str, pattern: str) -> str:
    """Replace each match by its line ends, so that the lines keep their numbers."""
    return re.sub(pattern, lambda match: " " + "\n" * match[0].count("\n"), text, flags=re.S | re.M)


def markdown(text: str) -> Iterator[tuple[int, str]]:
    """Yield the prose of a Markdown file: no code, no tables."""
    text = blanked(text, r"^([ \t]*)```.*?^\1```[ \t]*$")
    text = blanked(text, r"^\|[^\n]*$")
    yield 1, re.sub(r"`[^`]*`", lambda match: "X" + "\n" * match[0].count("\n"), text)


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a module without their examples."""
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, nodes) and ast.get_docstring(node):
            constant = node.body[0].value  # pyright: ignore[reportAttributeAccessIssue]
            yield constant.lineno, blanked(constant.value, r">>>.*?(?:\n[ \t]*\n|\Z)")


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the literal text of raised errors."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            for part in ast.walk(node.exc):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of a module, those of adjacent lines as one."""
    first, lines = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or re.match(r"#\s*(?:type|pyright|noqa|ruff)\b", token.string):
            continue
        if lines and token.start[0] != first + len(lines):
            yield first, "\n".join(lines)
            lines = []
        first = first if lines else token.start[0]
        lines.append(token.string.lstrip("# "))
    if lines:
        yield first, "\n".join(lines)


def prose(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a file, each with the number of its first line."""
    text = file.read_text("utf-8")
    if file.suffix == ".md":
        yield from markdown(text)
        return
    tree = ast.parse(text)
    for line, part in (*docstrings(tree), *messages(tree), *comments(text)):
        yield line, re.sub(r"`[^`]*`", lambda match: "X" + "\n" * match[0].count("\n"), part)


def count(file: Path, name: str) -> Counts:
    """Return the words and flags of a file."""
    counts = Counts()
    for line, text in prose(file):
        counts.words += len(re.findall(r"[A-Za-z']+", text))
        for pattern, advice in FLAGS:
            for match in pattern.finditer(text):
                phrase = match[0].strip(" .;:,\n")
                start = match.start() + match[0].index(phrase)
                counts.flags.append((name, line + text.count("\n", 0, start), " ".join(phrase.split()), advice))
    counts.flags.sort()
    return counts


def files(path: Path) -> list[Path]:
    """Return the Markdown and Python files of a path."""
    if path.is_file():
        return [path]
    inside = sorted(file for kind in ("*.md", "*.py") for file in path.rglob(kind))
    return inside if path.name != "packages" else [f for f in inside if f.relative_to(path).parts[1] != "tests"]


def package(file: Path) -> str:
    """Return what a file is counted as: `penstock.plan`, `docs`, `README.md`."""
    parts = file.relative_to(ROOT).parts if file.is_relative_to(ROOT) else file.parts
    if parts[:2] == ("src", "penstock"):
        return ".".join(("penstock", *parts[2:3])).removesuffix(".py") if len(parts) > 3 else "penstock"
    return parts[1] if parts[0] == "packages" else parts[0]


def over_limits(by_file: dict[str, tuple[str, Counts]], by_package: dict[str, Counts]) -> list[str]:
    """Return what is above its limit."""
    total = Counts()
    for counts in by_package.values():
        total.add(counts)
    wrong = [f"all: {total.rate:.1f} per 1,000 words, the limit is {OVERALL}"] if total.rate > OVERALL else []
    for name, counts in by_package.items():
        if counts.rate > OVERALL and counts.words > SMALL:
            wrong.append(f"{name}: {counts.rate:.1f} per 1,000 words, the limit of a package is {OVERALL}")
    for name, (_, counts) in by_file.items():
        if counts.words > SMALL and counts.rate > FILE:
            wrong.append(f"{name}: {counts.rate:.1f} per 1,000 words, the limit of a file is {FILE}")
    return wrong


def main(arguments: list[str]) -> int:
    """Print the counts, and return 1 where the whole project was checked and is above a limit."""
    chosen = [Path(argument).resolve() for argument in arguments if argument != "--list"]
    by_file: dict[str, tuple[str, Counts]] = {}
    by_package: dict[str, Counts] = {}
    for path in chosen or [ROOT / path for path in PATHS]:
        for file in files(path):
            name = str(file.relative_to(ROOT) if file.is_relative_to(ROOT) else file)
            counts = count(file, name)
            by_file[name] = package(file), counts
            by_package.setdefault(package(file), Counts()).add(counts)
    total = Counts()
    for name, counts in sorted(by_package.items()):
        total.add(counts)
        print(f"{name:24} {counts.words:8} words {len(counts.flags):6} flags {counts.rate:6.1f} per 1,000")
    print(f"{'all':24} {total.words:8} words {len(total.flags):6} flags {total.rate:6.1f} per 1,000")
    wrong = [] if chosen else over_limits(by_file, by_package)
    if "--list" in arguments or wrong:
        above = {line.split(":")[0] for line in wrong}
        for name, (of, counts) in by_file.items():
            if "--list" in arguments or above & {name, of} or "all" in above:
                for file, line, phrase, advice in counts.flags:
                    print(f"{file}:{line}: {phrase} -> {advice}")
    for line in wrong:
        print(f"too many flags: {line}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
