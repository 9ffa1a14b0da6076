"""`McapLog`: an MCAP file. Its indexes say where messages are; a file without them is read from start to end, once.

A file that was cut has no footer. Then its whole messages are read, and the account says how many.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
import zstandard
from mcap import records
from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode

from penstock.core.arrays import IntArray
from penstock.core.boundary import parsing
from penstock.core.text import counted
from penstock.errors import ChecksumError, FormatError
from penstock.formats.base.account import LeftOut
from penstock_logs.log import MAX_CHUNK, PART, ChunkedLog, StoredMessage, Topic, exactly, of_lz4
from penstock_logs.messages import check_name, decoder_of, schema_text

MAGIC = b"\x89MCAP0\r\n"
HEAD = struct.Struct("<BQ")
MESSAGE = struct.Struct("<HIQQ")
FOOTER = 9 + 20


@dataclass(eq=False)
class _Contents:
    """The records of a file: schemas and channels by id, and the messages of each channel."""

    schemas: dict[int, records.Schema] = field(default_factory=dict[int, records.Schema])
    channels: dict[int, records.Channel] = field(default_factory=dict[int, records.Channel])
    chunks: list[records.ChunkIndex] = field(default_factory=list[records.ChunkIndex])
    places: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])  # of chunks: first byte and length
    messages: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict[int, list[tuple[int, int, int]]])
    attachments: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    metadata: list[int] = field(default_factory=list[int])
    statistics: records.Statistics | None = None

    def add(self, channel: int, time: int, chunk: int, offset: int) -> None:
        """Add a message."""
        self.messages.setdefault(channel, []).append((time, chunk, offset))


class McapLog(ChunkedLog):
    """The messages of an MCAP file."""

    _places: list[tuple[int, int]]

    def _find(self, file: IO[bytes]) -> dict[str, Topic]:
        if file.read(len(MAGIC)) != MAGIC:
            raise FormatError("expected an MCAP file, which begins with its magic bytes", path=self.path)
        size = file.seek(0, io.SEEK_END)
        contents = self._summary(file, size)
        if contents is None:
            contents = self._scanned(file, size)
        self._places = contents.places
        for name, length in contents.attachments:
            self.left_out.append(LeftOut("member", name, "document", f"an attachment of {length:,} bytes is not read"))
        for offset in contents.metadata:
            with parsing(self.path, "metadata"):
                content = _content(file, offset, size, Opcode.METADATA, self.path)
                record = records.Metadata.read(_stream(content))
                self.values |= {f"{record.name}/{key}": value for key, value in record.metadata.items()}
        return self._topics(contents)

    def _summary(self, file: IO[bytes], size: int) -> _Contents | None:
        """The records of the summary; None if there is none, or it is not to be trusted."""
        if size < len(MAGIC) * 2 + FOOTER:
            return None
        tail = exactly(file, size - FOOTER - len(MAGIC), FOOTER + len(MAGIC), self.path)
        code, length = HEAD.unpack_from(tail)
        if not tail.endswith(MAGIC) or code != Opcode.FOOTER or length != FOOTER - HEAD.size:
            return None
        start, _, crc = struct.unpack_from("<QQI", tail, HEAD.size)
        end = size - FOOTER - len(MAGIC)
        if not len(MAGIC) <= start <= end or start == 0:
            return None
        summary = exactly(file, start, end - start, self.path)
        if crc and zlib.crc32(tail[: FOOTER - 4], zlib.crc32(summary)) != crc:
            message = "the summary does not have its checksum: all messages were looked for instead"
            self.left_out.append(LeftOut("bytes", "summary", "checksum", message))
            return None
        contents = _Contents()
        with parsing(self.path, "summary"):
            for code, offset, length in _records(io.BytesIO(summary), 0, len(summary)):
                self._take(contents, code, summary[offset : offset + length])
            return contents if self._index(file, contents) else None

    def _take(self, contents: _Contents, code: int, content: bytes) -> None:
        """Take in a record of the summary."""
        stream = _stream(content)
        if code == Opcode.SCHEMA:
            schema = records.Schema.read(stream)
            contents.schemas[schema.id] = schema
        elif code == Opcode.CHANNEL:
            channel = records.Channel.read(stream)
            contents.channels[channel.id] = channel
        elif code == Opcode.CHUNK_INDEX:
            contents.chunks.append(records.ChunkIndex.read(stream))
        elif code == Opcode.STATISTICS:
            contents.statistics = records.Statistics.read(stream)
        elif code == Opcode.ATTACHMENT_INDEX:
            attachment = records.AttachmentIndex.read(stream)
            contents.attachments.append((attachment.name, attachment.data_size))
        elif code == Opcode.METADATA_INDEX:
            contents.metadata.append(records.MetadataIndex.read(stream).offset)

    def _index(self, file: IO[bytes], contents: _Contents) -> bool:
        """Read the indexes of messages; a chunk without one is unpacked. Returns whether they have all messages."""
        for chunk in contents.chunks:
            number = len(contents.places)
            contents.places.append((chunk.chunk_start_offset, chunk.chunk_length))
            if not chunk.message_index_offsets:
                self._scan_chunk(file, contents, number)
                continue
            start = chunk.chunk_start_offset + chunk.chunk_length
            index = exactly(file, start, chunk.message_index_length, self.path)
            for code, offset, length in _records(io.BytesIO(index), 0, len(index)):
                if code == Opcode.MESSAGE_INDEX:
                    (channel,) = struct.unpack_from("<H", index, offset)
                    pairs = np.frombuffer(index, "<u8", (length - 6) // 16 * 2, offset + 6).reshape(-1, 2)
                    rows = contents.messages.setdefault(channel, [])
                    rows += [(time, number, place) for time, place in pairs.tolist()]
        counts = {channel: len(rows) for channel, rows in contents.messages.items()}
        stated = contents.statistics
        if stated is None:
            return bool(contents.chunks) and counts.keys() <= contents.channels.keys()
        given = {channel: n for channel, n in stated.channel_message_counts.items() if n}
        per_channel = not given or given == counts
        return (
            sum(counts.values()) == stated.message_count and per_channel and counts.keys() <= contents.channels.keys()
        )

    def _scanned(self, file: IO[bytes], size: int) -> _Contents:
        """Look for all records from start to end, without an index."""
        contents = _Contents()
        ended = False
        for code, offset, length in _records(file, len(MAGIC), size):
            if code == Opcode.DATA_END:
                ended = True
                break
            if code in (Opcode.SCHEMA, Opcode.CHANNEL):
                self._take(contents, code, exactly(file, offset, length, self.path))
            elif code == Opcode.MESSAGE and length >= MESSAGE.size:
                channel, _, time, _ = MESSAGE.unpack(exactly(file, offset, MESSAGE.size, self.path))
                contents.add(channel, time, -1, offset - HEAD.size)
            elif code == Opcode.CHUNK:
                contents.places.append((offset - HEAD.size, HEAD.size + length))
                self._scan_chunk(file, contents, len(contents.places) - 1)
            elif code == Opcode.METADATA:
                contents.metadata.append(offset - HEAD.size)
            elif code == Opcode.ATTACHMENT:
                attachment = records.Attachment.read(_stream(exactly(file, offset, length, self.path)))
                contents.attachments.append((attachment.name, len(attachment.data)))
        total = sum(map(len, contents.messages.values()))
        if not ended:
            message = f"the file was cut, or its writer was killed: it has {counted(total, 'whole message')} of more"
            self.left_out.append(LeftOut("bytes", self.path.name, "truncated", message))
        return contents

    def _scan_chunk(self, file: IO[bytes], contents: _Contents, number: int) -> None:
        """Add the messages of a chunk, which has no index. A damaged chunk is left out, and said."""
        start, length = contents.places[number]
        try:
            with parsing(self.path, f"the chunk at byte {start}"):
                content = _unpacked(exactly(file, start, length, self.path), self.path)
        except FormatError as error:
            reason = "checksum" if isinstance(error, ChecksumError) else "damaged-part"
            message = f"{str(error).partition(' - at ')[0]}: its messages are left out"
            self.left_out.append(LeftOut("bytes", f"the chunk at byte {start}", reason, message))
            return
        for code, offset, size in _records(io.BytesIO(content), 0, len(content)):
            if code in (Opcode.SCHEMA, Opcode.CHANNEL):
                self._take(contents, code, content[offset : offset + size])
            elif code == Opcode.MESSAGE and size >= MESSAGE.size:
                channel, _, time, _ = MESSAGE.unpack_from(content, offset)
                contents.add(channel, time, number, offset - HEAD.size)

    def _topics(self, contents: _Contents) -> dict[str, Topic]:
        """Topics, each with the messages of all its channels."""
        by_topic: dict[str, list[records.Channel]] = {}
        for channel in contents.channels.values():
            by_topic.setdefault(channel.topic, []).append(channel)
        for channel in contents.messages.keys() - contents.channels.keys():
            message = (
                f"{counted(len(contents.messages[channel]), 'message')} of a channel that the file does not describe"
            )
            self.left_out.append(LeftOut("topic", f"channel {channel}", "missing-part", message))
        topics: dict[str, Topic] = {}
        for name, channels in by_topic.items():
            rows = [row for channel in channels for row in contents.messages.get(channel.id, [])]
            if (topic := self._topic(name, channels, contents.schemas, rows)) is not None:
                self._put(topics, topic)
        return topics

    def _topic(
        self,
        name: str,
        channels: list[records.Channel],
        schemas: Mapping[int, records.Schema],
        rows: list[tuple[int, int, int]],
    ) -> Topic | None:
        kinds = {(each.message_encoding, _identity(schemas.get(each.schema_id))) for each in channels}
        schema = schemas.get(channels[0].schema_id)
        lacks = channels[0].schema_id not in schemas and channels[0].schema_id != 0
        if not rows:
            self.left_out.append(LeftOut("topic", name, "document", f"{schema_text(schema)}: the topic has no message"))
            return None
        decode, message = None, ""
        if len(kinds) > 1:
            message = f"expected channels of one type, got {len(channels)} of {len(kinds)} types"
        elif lacks:
            message = f"the file has no schema {channels[0].schema_id}, by which its messages are read"
        else:
            with parsing(self.path, name):
                decode = decoder_of(channels[0].message_encoding, schema)
            kind = f"{channels[0].message_encoding!r} with {schema.encoding if schema else 'no schema'}"
            message = f"expected messages as JSON, Protobuf or CDR with their definitions, got {kind}"
        if decode is None:
            self.left_out.append(LeftOut("topic", name, "unsupported-dtype", message, len(rows)))
            return None
        with parsing(self.path, name):
            table = np.array(rows, np.int64)
        entries: dict[str, IntArray] = {"times": table[:, 0], "chunk": table[:, 1], "offset": table[:, 2]}
        return Topic.of(check_name(name), schema_text(schema), entries, decode)

    def _load(self, file: IO[bytes], chunk: int) -> bytes:
        start, length = self._places[chunk]
        with parsing(self.path, f"the chunk at byte {start}"):
            return _unpacked(exactly(file, start, length, self.path), self.path)

    def _message(self, content: bytes, offset: int) -> StoredMessage:
        code, length = HEAD.unpack_from(content, offset)
        start = offset + HEAD.size
        if code != Opcode.MESSAGE or start + length > len(content):
            raise FormatError(f"expected a message at byte {offset} of its chunk, got a record {code}", path=self.path)
        return StoredMessage(content[start + MESSAGE.size : start + length], MESSAGE.unpack_from(content, start)[3])

    def _outside(self, file: IO[bytes], offset: int) -> StoredMessage:
        _, length = HEAD.unpack(exactly(file, offset, HEAD.size, self.path))
        return self._message(exactly(file, offset, HEAD.size + length, self.path), 0)


def _identity(schema: records.Schema | None) -> Any:
    return None if schema is None else (schema.name, schema.encoding, schema.data)


def _stream(content: bytes) -> ReadDataStream:
    return ReadDataStream(io.BytesIO(content))


def _content(file: IO[bytes], offset: int, size: int, expected: int, path: Any) -> bytes:
    code, length = HEAD.unpack(exactly(file, offset, HEAD.size, path))
    if code != expected or length > size:
        raise FormatError(f"expected a record {expected} at byte {offset}, got {code}", path=path)
    return exactly(file, offset + HEAD.size, length, path)


def _records(file: IO[bytes], start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield code, place and length of the content of each whole record."""
    while start + HEAD.size <= end:
        file.seek(start)
        head = file.read(HEAD.size)
        if len(head) < HEAD.size:
            return
        code, length = HEAD.unpack(head)
        start += HEAD.size
        if length > end - start:
            return
        yield code, start, length
        start += length


def _unpacked(record: bytes, path: Any) -> bytes:
    """The content of a chunk, whose checksum is compared."""
    offset = HEAD.size
    code, _ = HEAD.unpack_from(record)
    _, _, size, crc = struct.unpack_from("<QQQI", record, offset)
    offset += 28
    (length,) = struct.unpack_from("<I", record, offset)
    kind = record[offset + 4 : offset + 4 + length].decode()
    offset += 4 + length
    (length,) = struct.unpack_from("<Q", record, offset)
    packed = record[offset + 8 : offset + 8 + length]
    if code != Opcode.CHUNK or len(packed) < length:
        raise FormatError(f"expected a chunk of {length} bytes, got {len(packed)}", path=path)
    if size > MAX_CHUNK:
        raise FormatError(f"expected at most {MAX_CHUNK} bytes in a chunk, got {size}", path=path)
    if kind == "zstd":
        content = _of_zstd(packed, size)
    elif kind == "lz4":
        content = of_lz4(packed, size)
    elif kind in ("", "none"):
        content = packed
    else:
        raise FormatError(f"expected a chunk packed by zstd or lz4, got {kind!r}", path=path)
    if len(content) != size:
        raise FormatError(f"expected {size} bytes in a chunk, got {len(content)}", path=path)
    if crc and zlib.crc32(content) != crc:
        raise ChecksumError("expected the bytes of a chunk that have its checksum, got others", path=path)
    return content


def _of_zstd(packed: bytes, size: int) -> bytes:
    """Unpacked bytes, one more than expected at most: memory is taken for what there is, not for what a header says."""
    content = bytearray()
    with zstandard.ZstdDecompressor().stream_reader(packed) as reader:
        while len(content) <= size and (part := reader.read(PART)):
            content += part
    return bytes(content)
