"""Every kind there is, in the order in which they are asked."""

from __future__ import annotations

from penstock.formats.demos.aloha import AlohaKind
from penstock.formats.demos.atari import AtariKind
from penstock.formats.demos.d4rl import D4rlKind
from penstock.formats.demos.dm_control import DmControlKind
from penstock.formats.demos.imitation import ImitationKind
from penstock.formats.demos.kind import Kind
from penstock.formats.demos.magical import MagicalKind
from penstock.formats.demos.minerl import MineRLKind
from penstock.formats.demos.plain import PlainKind
from penstock.formats.demos.procgen import ProcgenKind
from penstock.formats.demos.robomimic import RobomimicKind

KINDS: tuple[Kind, ...] = (
    MagicalKind(),
    DmControlKind(),
    AtariKind(),
    ProcgenKind(),
    MineRLKind(),
    RobomimicKind(),
    D4rlKind(),
    AlohaKind(),
    ImitationKind(),
    PlainKind(),
)
