"""The format of demonstrations: one name for several kinds of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from penstock.containers.npz import npz_names
from penstock.errors import FormatError, UnknownFormatError
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import Format, unknown_option
from penstock.formats.base.source import Source
from penstock.formats.demos.aloha import AlohaKind
from penstock.formats.demos.d4rl import D4rlKind
from penstock.formats.demos.imitation import ImitationKind
from penstock.formats.demos.plain import PlainKind
from penstock.formats.demos.robomimic import RobomimicKind
from penstock.formats.demos.source import Kind


class FormatOfKinds(Format):
    """Files as their makers published them, of several kinds; read-only."""

    kinds: ClassVar[tuple[Kind, ...]]

    def recognises(self, path: Path) -> bool:
        """Whether one of the kinds recognises it."""
        return self._recognised(path) is not None

    def are_shards(self, files: Sequence[Path]) -> bool:
        """Whether their kind has a trajectory or some in each of several files."""
        kind = self._recognised(files[0])
        return kind is not None and kind.several

    def open_files(self, files: Sequence[Path], *, kind: str | None = None, **options: Any) -> Source:
        """Open several files of one kind. Raises as `open` does."""
        opened: Any = _opening(self.kind_at(files[0], kind), options)
        if not opened.several:
            raise FormatError(f"expected one file or folder of the kind {opened.name!r}, got several", path=files[0])
        return opened.open(files, **options)

    def open(self, path: Path, *, kind: str | None = None, **options: Any) -> Source:
        return _opening(self.kind_at(path, kind), options).open(path, **options)

    def check(self, path: Path, *, deep: bool = True, kind: str | None = None, **options: Any) -> Iterator[Finding]:
        """Look for damage, as the kind does, with the options of `open`."""
        return _opening(self.kind_at(path, kind), options).check(path, deep=deep, **options)

    def opening_checks(self, path: Path, *, kind: str | None = None, **options: Any) -> bool:
        """Of the kinds that read everything when they are opened."""
        return type(self.kind_at(path, kind)).check is Kind.check

    @override
    def kind_name(self, path: Path) -> str:
        """Name of the kind that recognises the files."""
        return self.kind_at(path).name

    def kind_at(self, path: Path, name: str | None = None) -> Kind:
        """The kind of that name, or the one that recognises the files at `path`."""
        names = [kind.name for kind in self.kinds]
        if name is not None:
            for kind in self.kinds:
                if kind.name == name:
                    return kind
            raise FormatError(f"expected a kind among {names}, got {name!r}", path=path)
        if (kind := self._recognised(path)) is not None:
            return kind
        message = f"expected demonstrations of {names}, got none of them; say which with `kind`, as kind={names[-1]!r}"
        raise UnknownFormatError(message, path=path)

    def _recognised(self, path: Path) -> Kind | None:
        return next((kind for kind in self.kinds if kind.recognises(path)), None)


class DemosFormat(FormatOfKinds):
    """Demonstrations in HDF5, `.npz` and pickles of other libraries. See docs/formats/demos.md."""

    name: ClassVar[str] = "demos"
    kinds: ClassVar[tuple[Kind, ...]] = (RobomimicKind(), D4rlKind(), AlohaKind(), ImitationKind(), PlainKind())
    description: ClassVar[str] = "demonstrations: " + ", ".join(kind.name for kind in kinds)
    file_suffixes: ClassVar[tuple[str, ...]] = (".npz", ".pkl", ".pkl.gz")

    def recognises(self, path: Path) -> bool:
        """Whether one of the kinds recognises it. The error of other `.npz` files says how to name their arrays."""
        if super().recognises(path):
            return True
        if names := npz_names(path):
            message = f"expected known names of observations and actions among {sorted(names)}; name them, as in "
            message += "format='demos', kind='npz', names={'observations': 'x', 'actions': 'u'}"
            raise FormatError(message)
        return False


def _opening(kind: Kind, options: Mapping[str, Any]) -> Kind:
    """The kind, if it has these options."""
    if unknown := [name for name in options if name not in kind.options]:
        raise unknown_option(f"the kind {kind.name!r}", unknown[0], kind.options)
    return kind
