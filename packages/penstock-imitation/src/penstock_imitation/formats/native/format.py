"""The format of native demonstrations of benchmarks: one name for several kinds of files."""

from __future__ import annotations

from typing import ClassVar

from penstock.formats.demos.format import FormatOfKinds
from penstock.formats.demos.source import Kind
from penstock_imitation.formats.native.atari import AtariKind
from penstock_imitation.formats.native.dm_control import DmControlKind
from penstock_imitation.formats.native.magical import MagicalKind
from penstock_imitation.formats.native.minerl import MineRLKind
from penstock_imitation.formats.native.procgen import ProcgenKind


class NativeFormat(FormatOfKinds):
    """Demonstrations of MAGICAL, dm_control, Atari, Procgen and MineRL; read-only. See its page of the docs."""

    name: ClassVar[str] = "native"
    kinds: ClassVar[tuple[Kind, ...]] = (MagicalKind(), DmControlKind(), AtariKind(), ProcgenKind(), MineRLKind())
    description: ClassVar[str] = "native demonstrations of benchmarks: " + ", ".join(kind.name for kind in kinds)
    extras: ClassVar[tuple[str, ...]] = ("video",)
    file_suffixes: ClassVar[tuple[str, ...]] = (".npz", ".pkl", ".pkl.gz")
