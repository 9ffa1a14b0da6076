"""`LogTree`: the topics of a log as groups of arrays, one row for each message.

Each topic has the clocks `log_time`, `publish_time` where the file says it, and `header.stamp` where its messages have
one, in nanoseconds; and the fields of its messages by their paths. An image is the array `image`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.boundary import parsing
from penstock.core.ragged import Array, Ragged
from penstock.core.spec import Field
from penstock.errors import FormatError
from penstock.formats.base.account import LeftOut
from penstock.formats.mapping.clocks import TimesRule
from penstock.formats.mapping.columns import known_name
from penstock.formats.mapping.tree import FileTree, TreeContent, TreeGuess, TreeLeaf
from penstock_logs.fields import NOTHING, field_of, flat, rows_of
from penstock_logs.log import CACHE, Log, StoredMessage, Topic
from penstock_logs.mcap_log import McapLog
from penstock_logs.pictures import PARTS, VIDEO, full_type, is_image, pixels_of
from penstock_logs.ros_logs import Bag1Log, Bag2Log

LOG_TIME = "log_time"
PUBLISH_TIME = "publish_time"
STAMP = "header/stamp"
CLOCKS: Mapping[str, str] = {STAMP: "header.stamp"}
FRAMES = ("header/frame_id", "header/seq")  # that a guess leaves out
IMAGE = "image"
LOOKS = 32  # messages of a topic that tell its fields
BLOCK_BYTES = 4 << 20  # of messages that are decoded together
BLOCK_ROWS = 256
TIME = Field(np.dtype(np.int64))


class _Fields(NamedTuple):
    """The fields of the messages of a topic, and how many messages are decoded together."""

    topic: Topic
    fields: Mapping[str, Field]
    block: int
    has_publish_time: bool


class LogTree(FileTree):
    """The topics of a log. Cost: its indexes, and some messages of each topic; then blocks of messages."""

    kind: ClassVar[Callable[[Path], Log]]

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._missing: list[LeftOut] = []

    @cached_property
    def _log(self) -> Log:
        with parsing(self.path):
            return type(self).kind(self.path)

    @cached_property
    def _topics(self) -> dict[str, _Fields]:
        """Topics by name, after a look at some of their messages. Others are added to `_missing`."""
        topics: dict[str, _Fields] = {}
        for name, topic in sorted(self._log.topics.items()):
            if full_type(topic.type) in VIDEO:
                message = "video in messages cannot be read by message; convert it to images, or to a video file"
                self._missing.append(LeftOut("topic", name, "unsupported-dtype", message, len(topic.times)))
                continue
            try:
                with parsing(self.path, name):
                    topics[name] = self._look(topic)
            except FormatError as error:
                self._missing.append(LeftOut.of_error("topic", name, error))
        return topics

    def find(self) -> TreeContent:
        """Return the fields of each topic, metadata of the file, and what is not read."""
        leaves: dict[str, TreeLeaf] = {}
        for group in self._topics.values():
            topic, n = group.topic, len(group.topic.times)
            note = f"{topic.type}, {topic.rate:.3g} a second" if n > 1 else topic.type
            leaves[f"{topic.name}/{LOG_TIME}"] = TreeLeaf(n, TIME, is_time=True, note=note)
        for group in self._topics.values():
            leaves |= self._leaves_of_topic(group)
        return TreeContent(leaves, self._log.values, [*self._log.left_out, *self._missing])

    def _look(self, topic: Topic) -> _Fields:
        messages, decoded = self._some_messages(topic)
        values = [_values(each, topic) for each in decoded]
        fields: dict[str, Field] = {}
        if is_image(topic.type):
            pixels = pixels_of(decoded[0], topic.type)
            fields[IMAGE] = Field(pixels.dtype, pixels.shape)
        for path in dict.fromkeys(path for each in values for path in each):
            field = field_of([each.get(path) for each in values])
            if isinstance(field, str):
                reason = "document" if field == NOTHING else "unsupported-dtype"
                self._missing.append(LeftOut("array", f"{topic.name}/{path}", reason, field))
            elif path in (LOG_TIME, PUBLISH_TIME):
                message = f"its name is that of a clock; the topic has a field {path!r}"
                self._missing.append(LeftOut("array", f"{topic.name}/{path}", "duplicate-key", message))
            else:
                fields[path] = field
        mean = max(sum(len(each.data) for each in messages) // len(messages), 1)
        block = min(max(BLOCK_BYTES // mean, 1), BLOCK_ROWS)
        return _Fields(topic, fields, block, messages[0].publish_time is not None)

    def _some_messages(self, topic: Topic) -> tuple[list[StoredMessage], list[Mapping[str, Any]]]:
        """Messages over the whole file. Damaged ones are passed over, and said, if there are others."""
        messages: list[StoredMessage] = []
        decoded: list[Mapping[str, Any]] = []
        errors: list[FormatError] = []
        for row in np.unique(np.linspace(0, len(topic.times) - 1, LOOKS).astype(np.int64)).tolist():
            try:
                with parsing(self.path, f"message {row} of {topic.name}"):
                    stored = list(self._log.messages(topic, np.array([row])))
                    messages += stored
                    decoded += [topic.decode(message.data) for message in stored]
            except FormatError as error:
                errors.append(error)
        if errors and not decoded:
            raise errors[0]
        if errors:
            self._missing.append(LeftOut.of_error("rows", topic.name, errors[0]))
        return messages, decoded

    def _leaves_of_topic(self, group: _Fields) -> dict[str, TreeLeaf]:
        topic, n = group.topic, len(group.topic.times)
        leaves: dict[str, TreeLeaf] = {}
        if group.has_publish_time:
            leaves[f"{topic.name}/{PUBLISH_TIME}"] = TreeLeaf(n, TIME, group.block, is_time=True)
        for path, field in group.fields.items():
            block = 1 if path == IMAGE and is_image(topic.type) else group.block
            leaves[f"{topic.name}/{CLOCKS.get(path, path)}"] = TreeLeaf(
                n, field, block, guessed=True, is_time=path == STAMP
            )
        return leaves

    def _split(self, name: str) -> tuple[_Fields, str]:
        """The topic of a leaf, and its path in it."""
        parts = name.split("/")
        for depth in range(len(parts) - 1, 0, -1):
            if (group := self._topics.get("/".join(parts[:depth]))) is not None:
                path = "/".join(parts[depth:])
                if f"{group.topic.name}/{path}" in self.leaves:
                    return group, STAMP if path == CLOCKS[STAMP] else path
        raise FormatError(f"expected a field of a topic, got {name!r}", path=self.path)

    def times_of(self, name: str, stated: TimesRule | None) -> TimesRule | None:
        """Return the clock of the topic: as stated, and otherwise `log_time`."""
        topic = self._split(name)[0].topic.name
        clock = LOG_TIME if stated is None else stated.array
        own = f"{topic}/{clock}"
        return TimesRule(own, None, "ns") if own in self.leaves or stated is None else stated

    def read(self, name: str, start: int, stop: int) -> Array:
        """Return rows: times from the index, images one by one, other fields from blocks of decoded messages."""
        group, path = self._split(name)
        topic = group.topic
        if path == LOG_TIME:
            return topic.times[start:stop]
        if path == IMAGE and is_image(topic.type):
            return self._images(topic, group.fields[IMAGE], start, stop)
        numbers = range(start // group.block, -(-stop // group.block) if stop > start else start // group.block)
        blocks = [self._block(group, number)[path] for number in numbers]
        first = start - numbers.start * group.block
        if not blocks:
            return rows_of(TIME if path == PUBLISH_TIME else group.fields[path], [], name, 0)
        ragged = [block for block in blocks if isinstance(block, Ragged)]
        arrays = [block for block in blocks if not isinstance(block, Ragged)]
        rows: Array = Ragged.concatenate(ragged) if ragged else np.concatenate(arrays)
        return rows[first : first + stop - start]

    def _images(self, topic: Topic, field: Field, start: int, stop: int) -> Array:
        out = np.empty((stop - start, *field.shape), field.dtype)
        for i, message in enumerate(self._log.messages(topic, np.arange(start, stop))):
            with parsing(self.path, f"message {start + i} of {topic.name}"):
                pixels = pixels_of(topic.decode(message.data), topic.type)
                if pixels.shape != field.shape or pixels.dtype != field.dtype:
                    expected = f"an image {field.dtype}{list(field.shape)} as the first"
                    raise FormatError(f"expected {expected}, got {pixels.dtype}{list(pixels.shape)}", path=self.path)
                out[i] = pixels
        return out

    def _block(self, group: _Fields, number: int) -> Mapping[str, Array]:
        """All fields of some messages but images, decoded or from the cache."""
        topic = group.topic

        def decoded() -> tuple[dict[str, Array], int]:
            start = number * group.block
            rows = np.arange(start, min(start + group.block, len(topic.times)))
            columns: dict[str, Array] = {}
            with parsing(self.path, topic.name):
                messages = list(self._log.messages(topic, rows))
                values = [_values(topic.decode(message.data), topic) for message in messages]
                for path, field in group.fields.items():
                    if path != IMAGE or not is_image(topic.type):
                        name = f"{topic.name}/{path}"
                        columns[path] = rows_of(field, [each.get(path) for each in values], name, start)
            columns[PUBLISH_TIME] = _publish_times(messages)
            return columns, sum(column.nbytes for column in columns.values()) + (1 << 10)

        return CACHE.get((self._log.number, topic.name, number), decoded)

    @property
    def nbytes(self) -> int:
        """Bytes of the index."""
        return sum(24 * len(topic.times) for topic in self._log.topics.values()) + (64 << 10)

    @property
    def guess(self) -> TreeGuess | None:
        """All fields of all topics that have a rate, joined at the times of the images, or of the slowest topic."""
        topics = [each for each in self._topics.values() if len(each.topic.times) > 1 and each.fields]
        if not topics:
            return None
        images = [each for each in topics if is_image(each.topic.type)]
        slowest = min(images or topics, key=lambda each: each.topic.rate)
        columns: dict[str, Any] = {}
        reference = ""
        for group in topics:
            for name, arrays in _columns(group).items():
                columns[name if known_name(name) in columns else known_name(name)] = arrays
                reference = reference or (list(columns)[-1] if group is slowest else "")
        within = 0.0 if len(topics) == 1 else _rounded(2 * max(each.topic.period for each in topics))
        single = [each.topic.name for each in self._topics.values() if each not in topics]
        unwanted = [f"{name}/**/*" for name in single]
        unwanted += [f"**/{path}" for path in FRAMES if any(path in each.fields for each in topics)]
        entries: dict[str, Any] = {"columns": columns, "clock": {"reference": reference, "within": within}}
        entries |= {"leave_out": unwanted} if unwanted else {}
        return TreeGuess(entries, len(topics) == 1)


def _values(message: Mapping[str, Any], topic: Topic) -> dict[str, Any]:
    """The fields of a message but its pixels."""
    if is_image(topic.type):
        message = {name: value for name, value in message.items() if name not in PARTS}
    return flat(message)


def _publish_times(messages: Sequence[StoredMessage]) -> IntArray:
    return np.array([message.publish_time or 0 for message in messages], np.uint64).view(np.int64)


def _columns(group: _Fields) -> dict[str, str | list[str]]:
    """Columns of a topic by name: numbers by the names of joints together, others alone, without clocks and frames."""
    paths = [path for path in group.fields if path not in (STAMP, *FRAMES)]
    columns: dict[str, str | list[str]] = {}
    families: dict[str, list[str]] = {}
    for path in paths:
        families.setdefault(path.rpartition("/")[0], []).append(path)
    for folder, family in families.items():
        whole = f"{group.topic.name}/{folder}" if folder else group.topic.name
        if folder and len(family) > 1 and all(group.fields[path] == Field(np.dtype(np.float64)) for path in family):
            columns[whole] = [f"{group.topic.name}/{path}" for path in family]
        else:
            columns |= {f"{group.topic.name}/{path}": f"{group.topic.name}/{path}" for path in family}
    return columns


def _rounded(seconds: float) -> float:
    """Seconds with one digit that is not 0, rounded up."""
    if seconds <= 0:
        return 0.0
    scale = 10.0 ** np.floor(np.log10(seconds))
    return float(np.ceil(seconds / scale - 1e-9) * scale)


class McapTree(LogTree):
    """An MCAP file."""

    kind = McapLog


class Bag1Tree(LogTree):
    """A bag of ROS 1."""

    kind = Bag1Log


class Bag2Tree(LogTree):
    """A bag of ROS 2 in SQLite."""

    kind = Bag2Log
