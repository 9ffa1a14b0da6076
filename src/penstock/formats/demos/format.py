"""The format of native demonstrations: one name for several kinds of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from penstock.errors import FormatError, UnknownFormatError
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import Format, unknown_option
from penstock.formats.base.source import Source
from penstock.formats.demos.archive import npz_names
from penstock.formats.demos.kind import Kind
from penstock.formats.demos.kinds import KINDS


class DemosFormat(Format):
    """Demonstrations as their makers published them; read-only. See docs/formats/demos.md.

    `open` takes `kind`, the name of one of `KINDS`, where the content should not be asked, and that kind's options.
    """

    name: ClassVar[str] = "demos"
    description: ClassVar[str] = "native demonstrations: " + ", ".join(kind.name for kind in KINDS)
    extras: ClassVar[tuple[str, ...]] = ("video",)
    file_suffixes: ClassVar[tuple[str, ...]] = (".npz", ".pkl", ".pkl.gz")

    def recognises(self, path: Path) -> bool:
        """Whether one of the kinds recognises it. The error of other `.npz` files says how to name their arrays."""
        if _recognised(path) is not None:
            return True
        if names := npz_names(path):
            message = f"expected known names of observations and actions among {sorted(names)}; name them, as in "
            message += "format='demos', kind='npz', names={'observations': 'x', 'actions': 'u'}"
            raise FormatError(message)
        return False

    def are_shards(self, files: Sequence[Path]) -> bool:
        """Whether their kind has a trajectory or some in each of several files."""
        kind = _recognised(files[0])
        return kind is not None and kind.several

    def open_files(self, files: Sequence[Path], *, kind: str | None = None, **options: Any) -> Source:
        """Open several files of one kind. Raises as `open` does."""
        opened: Any = _opening(kind_at(files[0], kind), options)
        if not opened.several:
            raise FormatError(f"expected one file or folder of the kind {opened.name!r}, got several", path=files[0])
        return opened.open(files, **options)

    def open(self, path: Path, *, kind: str | None = None, **options: Any) -> Source:
        """Open for reading. Raises `FormatError` for damaged data, `TypeError` for an unknown option."""
        return _opening(kind_at(path, kind), options).open(path, **options)

    def check(self, path: Path, *, deep: bool = True, kind: str | None = None, **options: Any) -> Iterator[Finding]:
        """Look for damage, as the kind does, with the options of `open`."""
        return _opening(kind_at(path, kind), options).check(path, deep=deep, **options)

    def opening_checks(self, path: Path, *, kind: str | None = None, **options: Any) -> bool:
        """Of the kinds that read everything when they are opened."""
        return type(kind_at(path, kind)).check is Kind.check


def _opening(kind: Kind, options: Mapping[str, Any]) -> Kind:
    """The kind, if it has these options."""
    if unknown := [name for name in options if name not in kind.options]:
        raise unknown_option(f"the kind {kind.name!r}", unknown[0], kind.options)
    return kind


def _recognised(path: Path) -> Kind | None:
    return next((kind for kind in KINDS if kind.recognises(path)), None)


def kind_at(path: Path, name: str | None = None) -> Kind:
    """The kind of that name, or the one that recognises the files at `path`. Raises `FormatError`."""
    if name is not None:
        for kind in KINDS:
            if kind.name == name:
                return kind
        raise FormatError(f"expected a kind among {[kind.name for kind in KINDS]}, got {name!r}", path=path)
    if (kind := _recognised(path)) is not None:
        return kind
    names = [kind.name for kind in KINDS]
    message = f"expected demonstrations of {names}, got none of them; say which with `kind`, as kind='npz'"
    raise UnknownFormatError(message, path=path)
