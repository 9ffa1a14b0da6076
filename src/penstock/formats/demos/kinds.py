"""Every kind there is, in the order in which they are asked."""

from __future__ import annotations

from penstock.formats.demos.atari import Atari
from penstock.formats.demos.d4rl import D4rl
from penstock.formats.demos.dm_control import DmControl
from penstock.formats.demos.imitation import Imitation
from penstock.formats.demos.kind import Kind
from penstock.formats.demos.magical import Magical
from penstock.formats.demos.minerl import MineRL
from penstock.formats.demos.plain import Plain
from penstock.formats.demos.procgen import Procgen
from penstock.formats.demos.robomimic import Robomimic

KINDS: tuple[Kind, ...] = (
    Magical(),
    DmControl(),
    Atari(),
    Procgen(),
    MineRL(),
    Robomimic(),
    D4rl(),
    Imitation(),
    Plain(),
)
