"""Every kind there is, in the order in which they are asked."""

from __future__ import annotations

from penstock.formats.demos.kind import Kind

KINDS: tuple[Kind, ...] = ()
