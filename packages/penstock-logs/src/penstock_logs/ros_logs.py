"""Bags of ROS 1 (`.bag`) and of ROS 2 (`.db3`)."""

from __future__ import annotations

import io
import os
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from mcap.records import Schema
from rosbags.rosbag1 import Reader, ReaderError
from rosbags.rosbag1.reader import decompressors
from rosbags.typesys import Stores, get_typestore

from penstock.core.arrays import IntArray
from penstock.core.boundary import parsing
from penstock.errors import FormatError
from penstock.files.remote import whole_file
from penstock.files.sqlite import database
from penstock.formats.base.account import LeftOut
from penstock_logs.log import MAX_CHUNK, ChunkedLog, Decode, Log, StoredMessage, Topic, of_lz4
from penstock_logs.messages import check_name, decoder_of, ros_decoder


class _SizedFile(io.BufferedReader):
    """A file that takes memory for the bytes that it has, and not for a size in a damaged header."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return bytes."""
        left = max(os.fstat(self.fileno()).st_size - self.tell(), 0)
        return super().read(min(left, size) if size is not None and size >= 0 else left)


class _SizedPath(type(Path())):
    """A path that opens such a file."""

    def open(self, *_: Any, **__: Any) -> Any:
        """Open the file for reading bytes."""
        return _SizedFile(io.FileIO(self))


class Bag1Log(ChunkedLog):
    """The messages of a bag of ROS 1, by its indexes. A bag without them must be indexed again first."""

    _chunks: dict[int, Any]

    def _find(self, file: IO[bytes]) -> dict[str, Topic]:
        reader = Reader(_SizedPath(whole_file(self.path)))
        try:
            reader.open()
        except ReaderError as error:
            hint = "`rosbag reindex` makes its index" if "index" in str(error) else "compare it with its origin"
            raise FormatError(f"expected a whole bag of ROS 1, got: {error}; {hint}", path=self.path) from error
        try:
            self._chunks = dict(reader.chunks)
            rows = {
                each.id: np.array([tuple(entry) for entry in reader.indexes.get(each.id, [])], np.int64).reshape(-1, 3)
                for each in reader.connections
            }
            by_topic: dict[str, list[Any]] = {}
            for connection in reader.connections:
                by_topic.setdefault(connection.topic, []).append(connection)
        finally:
            reader.close()
        topics: dict[str, Topic] = {}
        for name, connections in by_topic.items():
            table = np.concatenate([rows[each.id] for each in connections])
            entries: dict[str, IntArray] = {"times": table[:, 0], "chunk": table[:, 1], "offset": table[:, 2]}
            if (decode := self._decoder(name, connections, len(table))) is not None:
                topic = Topic.of(check_name(name), connections[0].msgtype, entries, decode)
                self._put(topics, topic)
        return topics

    def _decoder(self, name: str, connections: list[Any], n: int) -> Decode | None:
        definitions = {(each.msgtype, each.msgdef.data) for each in connections}
        if not n:
            message = f"{connections[0].msgtype}: the topic has no message"
            self.left_out.append(LeftOut("topic", name, "document", message))
            return None
        if len(definitions) > 1:
            message = f"expected connections of one type, got {len(connections)} of {len(definitions)} types"
            self.left_out.append(LeftOut("topic", name, "unsupported-dtype", message, n))
            return None
        with parsing(self.path, name):
            type, text = next(iter(definitions))
            return decoder_of("ros1", Schema(id=1, name=type, encoding="ros1msg", data=text.encode()))

    def _load(self, file: IO[bytes], chunk: int) -> bytes:
        place = self._chunks[chunk]
        file.seek(place.datapos)
        packed = file.read(place.datasize)
        with parsing(self.path, f"the chunk at byte {chunk}"):
            is_lz4 = place.decompressor is decompressors["lz4"]
            content: bytes = of_lz4(packed, MAX_CHUNK) if is_lz4 else place.decompressor(packed)
        if len(content) > MAX_CHUNK:
            raise FormatError(f"expected at most {MAX_CHUNK} bytes in a chunk, got {len(content)}", path=self.path)
        return content

    def _message(self, content: bytes, offset: int) -> StoredMessage:
        with parsing(self.path, f"byte {offset} of a chunk"):
            (head,) = struct.unpack_from("<I", content, offset)
            fields = dict(_fields(content[offset + 4 : offset + 4 + head]))
            (length,) = struct.unpack_from("<I", content, offset + 4 + head)
            start = offset + 8 + head
            if fields.get(b"op") != b"\x02" or start + length > len(content):
                raise FormatError("expected a message, got another record", path=self.path)
            return StoredMessage(content[start : start + length], None)


def _fields(head: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The fields of the head of a record."""
    offset = 0
    while offset < len(head):
        (length,) = struct.unpack_from("<I", head, offset)
        name, _, value = head[offset + 4 : offset + 4 + length].partition(b"=")
        yield name, value
        offset += 4 + length


class Bag2Log(Log):
    """The messages of a bag of ROS 2 in SQLite. Each message is read by its number."""

    def _find(self, file: IO[bytes]) -> dict[str, Topic]:
        if file.read(16) != b"SQLite format 3\0":
            raise FormatError("expected a bag of ROS 2 in SQLite, got another kind of file", path=self.path)
        topics: dict[str, Topic] = {}
        with parsing(self.path), database(self.path) as opened:
            definitions = self._definitions(opened)
            listed = opened.execute("SELECT id, name, type, serialization_format FROM topics").fetchall()
            for number, name, type, encoding in listed:
                select = "SELECT timestamp, 0, id FROM messages WHERE topic_id = ? ORDER BY timestamp, id"
                table = np.array(opened.execute(select, [number]).fetchall(), np.int64).reshape(-1, 3)
                entries: dict[str, IntArray] = {"times": table[:, 0], "chunk": table[:, 1], "offset": table[:, 2]}
                if (decode := self._decoder(name, type, encoding, definitions.get(type), len(table))) is not None:
                    topic = Topic.of(check_name(name), type, entries, decode)
                    self._put(topics, topic)
        return topics

    def _definitions(self, opened: sqlite3.Connection) -> dict[str, tuple[str, str]]:
        tables = {name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "message_definitions" not in tables:
            return {}
        select = "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions"
        return {type: (encoding, text) for type, encoding, text in opened.execute(select) if text}

    def _decoder(
        self, name: str, type: str, encoding: str, definition: tuple[str, str] | None, n: int
    ) -> Decode | None:
        if not n:
            self.left_out.append(LeftOut("topic", name, "document", f"{type}: the topic has no message"))
            return None
        if definition is not None:
            schema = Schema(id=1, name=type, encoding=definition[0], data=definition[1].encode())
            with parsing(self.path, name):
                decode = decoder_of(encoding, schema)
            message = f"expected CDR with a definition, got {encoding} with {definition[0]}"
        else:
            store = get_typestore(Stores.ROS2_HUMBLE)
            known = type in store.fielddefs and encoding == "cdr"
            decode = ros_decoder(store, type, is_ros1=False) if known else None
            message = f"the bag has no definition of {type}; write it again with a later rosbag2, or as MCAP"
            if known:
                guess = f"the bag has no definition of {type}: it is read as ROS 2 Humble defines it"
                self.left_out.append(LeftOut("topic", name, "guessed", guess))
        if decode is None:
            self.left_out.append(LeftOut("topic", name, "unsupported-dtype", message, n))
        return decode

    def messages(self, topic: Topic, rows: IntArray) -> Iterator[StoredMessage]:
        """Yield messages of a topic."""
        with parsing(self.path, topic.name), database(self.path) as opened:
            for number in topic.offset[rows].tolist():
                row = opened.execute("SELECT data FROM messages WHERE id = ?", [number]).fetchone()
                if row is None:
                    raise FormatError(f"expected a message {number}, got none", path=self.path)
                yield StoredMessage(bytes(row[0]), None)
