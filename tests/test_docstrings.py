"""Public docstrings have sections: arguments, results, errors, and an example that runs.

Public names are those that `penstock` exports and those that the reference pages show. A page that names a module shows
its exported names, or else every name that the module defines, or with `members: false` its own text alone. Any other
class or function has a docstring of one paragraph or none.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs" / "reference").glob("*.md")), *sorted(ROOT.glob("packages/*/docs/*.md"))]
SHOWN = re.compile(r"^::: (\S+)$(?!\n    options:\n      members: false$)", re.MULTILINE)
ENTRY = re.compile(r"    (\w+): \S")
NOTHING = {"None", "Self", "NoReturn"}
BUGS = {"AssertionError", "NotImplementedError", "StopIteration"}  # errors that no caller handles


def named(path: str) -> Any:
    """The module, class or function of a dotted name."""
    parts = path.split(".")
    for n in range(len(parts), 0, -1):
        try:
            subject = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for name in parts[n:]:
            subject = getattr(subject, name)
        return subject
    raise AssertionError(f"expected the name of something that exists, got {path}")


def shown(subject: Any) -> list[Any]:
    """The names of a module that the site shows, or the class or function itself."""
    if not inspect.ismodule(subject):
        return [subject]
    if hasattr(subject, "__all__"):
        return [getattr(subject, name) for name in subject.__all__]
    return defined(subject)


def defined(module: Any) -> list[Any]:
    """The public names that a module defines."""
    values = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return [value for value in values.values() if getattr(value, "__module__", None) == module.__name__]


def by_name(subjects: list[Any]) -> dict[str, Any]:
    """The classes and functions of some subjects, by their full name."""
    known = [each for each in subjects if inspect.isclass(each) or inspect.isfunction(each)]
    return {f"{each.__module__}.{each.__qualname__}": each for each in known}


def public() -> dict[str, Any]:
    """Every class and function that `penstock` exports or a reference page shows, by its full name."""
    pages = "\n".join(page.read_text("utf-8") for page in PAGES)
    targets = ["penstock", *SHOWN.findall(pages)]
    return by_name([each for target in targets for each in shown(named(target))])


def is_error(subject: Any) -> bool:
    """Whether a class is an exception: these are raised and not called, so they need no example."""
    return inspect.isclass(subject) and issubclass(subject, BaseException)


def described(doc: str | None, section: str = "Args") -> set[str]:
    """The names that a section of a docstring describes."""
    names: set[str] = set()
    inside = False
    for line in inspect.cleandoc(doc or "").splitlines():
        if not line.startswith(" ") and line:
            inside = line == f"{section}:"
        elif inside and (entry := ENTRY.match(line)):
            names.add(entry[1])
    return names


def arguments(call: Callable[..., Any]) -> set[str]:
    """The names of the arguments of a function, without `self`, `cls` and those that begin with an underscore.

    In place of `**options: Unpack[Options]`, the names in `Options` count.
    """
    names: set[str] = set()
    for name, parameter in inspect.signature(call).parameters.items():
        options = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
        names |= {name} if options is None else set(call.__globals__[options[1]].__annotations__)
    return {name for name in names if name not in {"self", "cls"} and name[0] != "_"}


def ours(cls: type) -> list[type]:
    """The classes of penstock that a class is made of."""
    return [base for base in cls.__mro__ if base.__module__.startswith("penstock")]


def function_of(member: Any) -> Any:
    """The function of a method, which may be a class method, static method or property; else the member."""
    if isinstance(member, classmethod | staticmethod):
        return member.__func__
    if isinstance(member, property):
        return member.fget
    return member.func if isinstance(member, cached_property) else member


def methods(cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public methods that a class defines, and its properties; not tests, to which pytest passes fixtures."""
    fields = getattr(cls, "__dataclass_fields__", {})  # some have a function as default
    for name, member in vars(cls).items():
        call = function_of(member)
        shown = not name.startswith(("_", "test_")) or (name == "__getitem__" and call.__doc__)
        if inspect.isfunction(call) and shown and name not in fields:
            yield name, call


def docs_of(cls: type, name: str) -> list[str | None]:
    """The docstrings of a method in the class and its bases."""
    return [function_of(vars(base)[name]).__doc__ for base in ours(cls) if name in vars(base)]


def undescribed(call: Callable[..., Any], docs: list[str | None]) -> str | None:
    """What is wrong with the best of the docstrings that may describe a function's arguments."""
    wanted = arguments(call)
    found = [described(doc) for doc in docs]
    if any(names == wanted for names in found):
        return None
    return f"describes {sorted(found[0])}, has {sorted(wanted)}"


def raised(call: Callable[..., Any]) -> set[str]:
    """The names of the errors that the code of a function raises itself. Generated code has no source."""
    names: set[str] = set()
    if inspect.unwrap(call).__code__.co_filename.startswith("<"):
        return names
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(call)))):
        call_of_error = node.exc if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) else None
        if call_of_error is not None and isinstance(call_of_error.func, ast.Name):
            names.add(call_of_error.func.id)
    return {name for name in names if name[0].isupper() and name not in BUGS}


PUBLIC = public()


def check_arguments(name: str) -> None:
    subject = PUBLIC[name]
    if inspect.isfunction(subject):
        assert undescribed(subject, [subject.__doc__]) is None
        return
    wrong = {}
    docs = [base.__doc__ for base in ours(subject)]
    if any("__init__" in vars(base) for base in ours(subject)) and not getattr(subject, "_is_protocol", False):
        wrong["__init__"] = undescribed(subject.__init__, docs)
    if hasattr(subject, "_fields"):  # a named tuple
        names = described(docs[0], "Attributes")
        wrong["__new__"] = None if names == set(subject._fields) else f"has {subject._fields}"
    for method, call in methods(subject):
        wrong[method] = undescribed(call, docs_of(subject, method))
    assert {method: problem for method, problem in wrong.items() if problem} == {}


def check_results_and_errors(name: str) -> None:
    subject = PUBLIC[name]
    assert subject.__doc__
    if inspect.isfunction(subject):
        result = inspect.signature(subject).return_annotation
        sections = re.findall(r"^(\w+):$", inspect.cleandoc(subject.__doc__), re.MULTILINE)
        assert result in NOTHING or {"Returns", "Yields"} & set(sections)
        assert raised(subject) <= described(subject.__doc__, "Raises")
        return
    own = set().union(*(described(base.__doc__, "Raises") for base in ours(subject)))
    for method in ("__init__", "__post_init__"):
        assert method not in vars(subject) or raised(vars(subject)[method]) <= own
    for method, call in methods(subject):
        docs = [doc for doc in docs_of(subject, method) if doc]
        assert docs, method
        assert raised(call) <= own.union(*(described(doc, "Raises") for doc in docs)), method


def check_example(name: str) -> None:
    doc = inspect.cleandoc(PUBLIC[name].__doc__ or "")
    assert is_error(PUBLIC[name]) or re.search(r"^Examples?:\n(.+\n|\n)*? +>>> ", doc, re.MULTILINE)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_described(name: str) -> None:
    check_results_and_errors(name)
    check_arguments(name)
    check_example(name)


def test_arguments_that_are_not_described_are_found() -> None:
    def function(size: int, seed: int) -> None:
        """Do it.

        Args:
            size: Rows of a block.

        Raises:
            ValueError: seed: no argument.
        """
        raise ValueError(size, seed)

    assert undescribed(function, [function.__doc__]) == "describes ['size'], has ['seed', 'size']"
    assert raised(function) == described(function.__doc__, "Raises") == {"ValueError"}
