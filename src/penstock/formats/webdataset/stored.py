"""Stored samples one by one, as they are: members that differ from a known one in their payload are not interpreted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.containers.pickle import PickleTemplate
from penstock.core.narrowing import is_array, is_scalar
from penstock.files.mapping import read_mapped
from penstock.formats.webdataset.decoders import Decode, MemberBytes, decoder, is_pickle, kind_of
from penstock.formats.webdataset.reading import LIKE, TEMPLATES, Archives

KNOWN = 1 << 12  # small values that are kept for an extension
_PLAIN = (bool, int, float, str, bytes, type(None))  # immutable values


class ArchiveSamples:
    """The samples of archives, each decoded as data when it is asked for. Shared by threads."""

    def __init__(self, archives: Archives) -> None:
        self._archives = archives
        self._values = [_Values(name, decoder(name, archives.options.how)) for name in archives.samples.extensions]

    def sample(self, i: int) -> dict[str, Any]:
        """`__key__`, and a value an extension; arrays are read-only. Raises `IndexError`, `FormatError`."""
        samples = self._archives.samples
        if not 0 <= i < len(samples):
            raise IndexError(f"expected a sample within 0:{len(samples)}, got {i}")
        decoded: dict[str, Any] = {"__key__": samples.key(i)}
        shard = int(samples.shard[i])
        buffer = self._archives.buffers[shard]
        places = zip(self._values, samples.payload[:, i].tolist(), samples.size[:, i].tolist(), strict=True)
        for values, begin, size in places:
            if size >= 0:
                name = values.extension
                decoded[name] = values.of(
                    read_mapped(buffer[begin : begin + size]).data, lambda name=name: self._archives.member(i, name)
                )
        return decoded


class _Values:
    """How the members of one extension become values. Knowledge of earlier members saves work, and is only a hint: a
    thread that misses it decodes."""

    def __init__(self, extension: str, decode: Decode | None) -> None:
        self.extension, self._decode = extension, decode
        self._tries = TEMPLATES if is_pickle(extension) and not kind_of(extension).endswith(".gz") else 0
        self._templates: list[PickleTemplate] = []
        self._known: dict[bytes, Any] = {}

    def of(self, raw: memoryview, member: Callable[[], MemberBytes]) -> Any:
        """The value of a member with these bytes."""
        if self._decode is None:
            return bytes(raw)
        for template in self._templates:
            if (array := template.match(raw)) is not None:
                return array[()] if template.scalar else array
        small = bytes(raw) if len(raw) <= LIKE else b""
        if small in self._known:
            return self._known[small]
        value = self._decode(member())
        if isinstance(value, _PLAIN):
            if small and len(self._known) < KNOWN:
                self._known[small] = value
        elif (is_array(value) or is_scalar(value)) and self._tries:
            self._tries -= 1
            if (learnt := PickleTemplate.learn(raw)) is not None:
                self._templates.append(learnt)
        return value
