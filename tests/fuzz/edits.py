"""Edits of valid files at the places where their structure is: what a container holds is taken out, edited, put back.

`edited(data, rng)` tells the kind of some bytes and either damages the bytes themselves or goes inside: a gzip file is
unpacked, edited and packed again with the right checksum, so that what is behind the checksum is reached too. A kind is
a function from bytes and a generator to bytes; it may call `edited` for what it holds.
"""

from __future__ import annotations

import ast
import gzip
import io
import json
import random
import re
import struct
import tarfile
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.pickles import mutate as mutated_pickle

Random = random.Random
NUMBERS = (0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 65535, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1)
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2, 1 << 31, 1 << 40, 1 << 63, 10**400, 0.5, float("inf"), float("nan"), "", "x", "\ud800"),
    *("\0", "../up", "/", "a/b", "<f4", "|O", "<i8", "float32", "<M8[ns]", "|V8", "x" * 5000, [], {}, [[]], [1, [2]]),
    *([-1], [1 << 40], [1 << 62, 4], [0, 3], {"a": 1}, {"type": "Box"}, "1e400", "True"),
)
DEEP = 5000


def edited(data: bytes, rng: Random, deep: int = 0) -> bytes:
    """The bytes with one edit, at the level of bytes or inside of the structure that they have."""
    kind = sniff(data) if deep < 5 else None
    if kind is None or rng.random() < 0.15:
        return damaged(data, rng)
    try:
        return kind(data, rng, deep)
    except Exception:  # noqa: BLE001
        return damaged(data, rng)  # an earlier edit left no structure to go into


def damaged(data: bytes, rng: Random) -> bytes:
    """Bits flipped, a number replaced, parts cut out, doubled, zeroed or swapped, the end cut off."""
    out = bytearray(data)
    # Headers and footers are most of the structure: half of the places are near an end.
    place = rng.choice(
        (rng.randrange(len(out) + 1), min(rng.randrange(512), len(out)), max(len(out) - rng.randrange(512), 0))
    )
    width = min(rng.choice((1, 2, 4, 8, 64, 512)), len(out) - place)
    match rng.randrange(9):
        case 0 | 1 if place < len(out):
            out[place] ^= 1 << rng.randrange(8)
        case 2 | 3:
            order = rng.choice("<>")
            number = struct.pack(order + "Q", rng.choice(NUMBERS))
            size = rng.choice((1, 2, 4, 8))
            out[place : place + size] = number[:size] if order == "<" else number[-size:]
        case 4:
            del out[place : place + width]
        case 5:
            out[place:place] = out[place : place + width]
        case 6:
            out[place : place + width] = bytes(width)
        case 7:
            other = rng.randrange(len(out) + 1)
            out[place : place + width] = out[other : other + width]
        case _:
            del out[place:]
    return bytes(out)


def corrupted(data: bytes, rng: Random) -> bytes:
    """Bits flipped, bytes zeroed or the end cut off: what a checksum is there for. Nothing is doubled or moved, for a
    gzip file twice in a row is a sound one."""
    out = bytearray(data)
    place = rng.randrange(len(out) + 1)
    match rng.randrange(3):
        case 0 if place < len(out):
            out[place] ^= rng.randrange(1, 256)
        case 1:
            end = min(place + rng.choice((1, 4, 64)), len(out))
            out[place:end] = bytes(end - place)
        case _:
            del out[place:]
    return bytes(out)


def sniff(data: bytes) -> Callable[[bytes, Random, int], bytes] | None:
    """What edits bytes of this kind, None for bytes without a known structure."""
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            return kind
    if data[257:262] == b"ustar":
        return _tar
    head = data.lstrip()[:1]
    if head in (b"{", b"["):
        return _json
    if re.match(rb"\s*[a-z_]+\s*[:{]", data[:100]):
        return _text
    return None


def _gzip(data: bytes, rng: Random, deep: int) -> bytes:
    return gzip.compress(edited(gzip.decompress(data), rng, deep + 1), 1, mtime=0)


def _zstd(data: bytes, rng: Random, deep: int) -> bytes:
    import zstandard

    plain = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return zstandard.ZstdCompressor(1).compress(edited(plain, rng, deep + 1))


def _members(data: bytes) -> list[tuple[bytes, bytes]]:
    """Header block and payload of each member of a tar."""
    found: list[tuple[bytes, bytes]] = []
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            header = data[member.offset : member.offset_data]
            found.append((header, data[member.offset_data : member.offset_data + member.size]))
    return found


def tar_header(header: bytes, **fields: bytes) -> bytes:
    """A header with some fields replaced, and the checksum of what it says then."""
    place = {
        "name": (0, 100),
        "size": (124, 12),
        "type": (156, 1),
        "link": (157, 100),
        "magic": (257, 8),
        "prefix": (345, 155),
    }
    block = bytearray(header[-512:])  # what lies before it are headers of long names
    for name, value in fields.items():
        at, width = place[name]
        block[at : at + width] = value[:width].ljust(width, b"\0")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return header[:-512] + bytes(block)


def _tar(data: bytes, rng: Random, deep: int) -> bytes:
    members = _members(data)
    i, j = rng.randrange(len(members)), rng.randrange(len(members))
    header, payload = members[i]
    match rng.randrange(8):
        case 0 | 1 | 2:
            payload = edited(payload, rng, deep + 1)
            members[i] = tar_header(header, size=b"%011o" % len(payload)), payload
        case 3:
            size = rng.choice(
                (b"%011o" % rng.choice(NUMBERS[:12]), b"\x80" + rng.choice(NUMBERS).to_bytes(11), b"-1", b"x")
            )
            members[i] = tar_header(header, size=size), payload
        case 4:
            name = header[-512:-412].rstrip(b"\0")
            stem, _, end = name.partition(b".")
            other = members[j][0][-512:-412].rstrip(b"\0")
            names = (
                b"",
                b"../x",
                b"/x",
                b"\xff\xfe." + end,
                stem + b"." + edited(end, rng, 9),
                other,
                stem,
                b"_" + name,
            )
            members[i] = tar_header(header, name=rng.choice(names)), payload
        case 5:
            members[i] = (
                tar_header(header, type=rng.choice([b"1", b"2", b"5", b"x", b"g", b"L", b"K", b"S", b"V"])),
                payload,
            )
        case 6:
            members[i], members[j] = members[j], members[i]
        case _:
            members[i : i + 1] = rng.choice(([], [members[i]] * 2, [members[i], members[j]]))
    blocks = [header + payload + bytes(-len(payload) % 512) for header, payload in members]
    return b"".join(blocks) + bytes(rng.choice((1024, 1024, 1024, 0, 512)))


def _zip(data: bytes, rng: Random, deep: int) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    i = rng.randrange(len(members))
    info, payload = members[i]
    match rng.randrange(6):
        case 0 | 1 | 2:
            members[i] = info, edited(payload, rng, deep + 1)
        case 3:
            info.filename = rng.choice(("", "x.npy", "../x.npy", "\u00e9.npy", info.filename[:-4], info.filename + "/"))
        case 4:
            del members[i]
        case _:
            members.append((members[0][0], payload))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for info, payload in members:
            archive.writestr(zipfile.ZipInfo(info.filename), payload, info.compress_type)
    return out.getvalue()


def _npy(data: bytes, rng: Random, deep: int) -> bytes:
    width = 2 if data[6] == 1 else 4
    end = 8 + width + int.from_bytes(data[8 : 8 + width], "little")
    header = ast.literal_eval(data[8 + width : end].decode("latin1"))
    body = data[end:]
    match rng.randrange(5):
        case 0:
            header[rng.choice(list(header))] = rng.choice((*ODD, (3,), (1 << 40,), (-1,), (0, 5), (1 << 32, 1 << 32)))
        case 1:
            header["descr"] = rng.choice(
                ("<f4", ">f8", "|O", "<U3", "|S5", "<M8[D]", "|V4", [("a", "<f4")], "<c8", "|b1")
            )
        case 2:
            shape = list(header["shape"])
            shape[rng.randrange(len(shape) or 1) : 1] = [rng.choice(NUMBERS)]
            header["shape"] = tuple(shape)
        case 3 if b"\x80" in body[:1]:
            body = mutated_pickle(rng, [body])
        case _:
            body = damaged(body, rng)
    text = repr(header).encode("utf-8", "surrogatepass") + b"\n"
    return data[:8] + (len(text) & 0xFFFF).to_bytes(width, "little") + text + body


def _walk(tree: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every place of a tree: the container and the key or number in it."""
    items = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree)) if isinstance(tree, list) else []
    for key, value in items:
        found.append((tree, key))
        _walk(value, found)
    return found


def odd_tree(tree: Any, rng: Random) -> Any:
    """A tree of JSON with one place changed: an odd value, a missing or doubled one, another name."""
    places = _walk(tree, [])
    if not places or rng.random() < 0.05:
        return rng.choice(ODD)
    holder, key = rng.choice(places)
    match rng.randrange(7):
        case 0:
            del holder[key]
        case 1:
            if isinstance(holder, dict):
                holder[rng.choice(("", "x", "\ud800", "a/b", key + "_"))] = holder.pop(key)
            else:
                holder.insert(key, holder[key])
        case 2:
            other, place = rng.choice(places)
            holder[key] = json.loads(json.dumps(other[place] if _has(other, place) else None))
        case 3 if isinstance(holder[key], str):
            holder[key] = odd_text(holder[key], rng)
        case 4 if type(holder[key]) in (int, float):
            holder[key] = rng.choice((-holder[key], holder[key] + 1, holder[key] - 1, *NUMBERS))
        case _:
            holder[key] = rng.choice(ODD)
    return tree


def _has(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)


def odd_text(text: str, rng: Random) -> str:
    """A text in a text: JSON that is stored as one is edited as JSON."""
    if text[:1] in ("{", "["):
        return _json(text.encode(), rng, 0).decode("utf-8", "replace")
    at = rng.randrange(len(text) + 1)
    return rng.choice(
        (text[:at], text[:at] + "\ud800" + text[at:], text + text, text.upper(), text[:at] + "9" + text[at:])
    )


def _json(data: bytes, rng: Random, deep: int) -> bytes:
    lines = data.splitlines(keepends=True)
    if len(lines) > 1 and all(line[:1] in (b"{", b"[") for line in lines):  # a line each
        i = rng.randrange(len(lines))
        lines[i : i + 1] = rng.choice(
            ([_json(lines[i], rng, deep) + b"\n"],) * 3 + ([], [lines[i]] * 2, [lines[i][:-1]])
        )
        return b"".join(lines)
    if rng.random() < 0.1:
        nested = b"[" * DEEP + b"]" * DEEP
        values = (nested, b'{"a":' * DEEP + b"1" + b"}" * DEEP, b"Infinity", b"1e400", b"9" * 5000, b"\xff", b"1.")
        places = [m.span(1) for m in re.finditer(rb":\s*([^,{}\[\]]+)", data)] or [(0, len(data))]
        a, b = rng.choice(places)
        return data[:a] + rng.choice(values) + data[b:]
    return json.dumps(odd_tree(json.loads(data), rng)).encode("utf-8", "surrogatepass")


def _text(data: bytes, rng: Random, deep: int) -> bytes:
    tokens = re.findall(rb"[A-Za-z_0-9.+-]+|\"[^\"\n]*\"|\s+|.", data, re.DOTALL)
    i, j = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    odd = (
        b"-1",
        b"1e400",
        b"nan",
        b"inf",
        b"0x",
        b"9" * 5000,
        b'"\\',
        b'"\\777"',
        b'"\\xff"',
        b"{" * DEEP,
        b"[",
        b"<",
        b"}",
        b":",
    )
    match rng.randrange(4):
        case 0:
            tokens[i] = rng.choice(odd)
        case 1:
            tokens[i] = tokens[j]
        case 2:
            tokens[i:i] = tokens[j : j + rng.choice((1, 5, 50))]
        case _:
            del tokens[i : i + rng.choice((1, 1, 5))]
    return b"".join(tokens)


def _pickle(data: bytes, rng: Random, deep: int) -> bytes:
    return mutated_pickle(rng, [data])


HDF5 = re.compile(b"OHDR|OCHK|TREE|SNOD|HEAP|FRHP|FHDB|FHIB|BTHD|BTLF|BTIN|GCOL|FAHD|EAHD")


def _hdf5(data: bytes, rng: Random, deep: int) -> bytes:
    """Numbers in the structures of HDF5, the checksum behind them made right where it can be told what it covers."""
    places = [m.start() for m in HDF5.finditer(data)] or [0]
    begin = rng.choice(places)
    out = bytearray(data)
    at = min(begin + 4 + rng.randrange(rng.choice((8, 40, 200, 600))), len(out) - 1)
    size = rng.choice((1, 1, 2, 4, 8))
    value = rng.choice((*NUMBERS, len(data), begin, rng.choice(places), rng.randrange(256)))
    out[at : at + size] = value.to_bytes(9, "little")[:size]
    del out[len(data) :]
    return with_checksums(bytes(out))


def with_checksums(data: bytes) -> bytes:
    """An HDF5 file whose superblock and object headers of version 2 have the checksums of what they say."""
    from penstock.kernels.checksum import lookup3

    out = bytearray(data)
    for found in re.finditer(b"OHDR\x02", data):
        flags = data[found.start() + 5] if found.start() + 5 < len(data) else 0
        width = 1 << (flags & 3)
        at = found.start() + 6 + 16 * (flags >> 5 & 1) + 4 * (flags >> 4 & 1)
        end = at + width + int.from_bytes(data[at : at + width], "little")
        if end + 4 <= len(out):
            out[end : end + 4] = int(lookup3(bytes(out[found.start() : end]))).to_bytes(4, "little")
    if data[8:9] in (b"\x02", b"\x03") and len(out) >= 48:
        out[44:48] = int(lookup3(bytes(out[:44]))).to_bytes(4, "little")
    return bytes(out)


def _table(data: bytes, rng: Random, deep: int) -> Any:
    """The table of an Arrow or Parquet file, with one column of another name, type, length or with nulls."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import ipc

    parquet, stream = data.startswith(b"PAR1"), data.startswith(b"\xff\xff\xff\xff")
    read = pq.read_table if parquet else lambda f: (ipc.open_stream if stream else ipc.open_file)(f).read_all()
    table = read(io.BytesIO(data))
    table.validate(full=True)  # operations on damaged arrays end the process
    i = rng.randrange(table.num_columns)
    column, name = table.column(i), table.column_names[i]
    n = table.num_rows
    try:
        match rng.randrange(8):
            case 0:
                table = table.remove_column(i)
            case 1:
                table = table.rename_columns(
                    [*table.column_names[:i], rng.choice(("", "x", "a/b", name + "x")), *table.column_names[i + 1 :]]
                )
            case 2:
                types = (pa.string(), pa.float32(), pa.int64(), pa.bool_(), pa.binary(), pa.large_string())
                table = table.set_column(i, name, pa.nulls(n).cast(rng.choice(types)))
            case 3:
                odd = (
                    [None] * n,
                    ["\u00e9"] * n,
                    [[1, 2]] * n,
                    [{"a": 1}] * n,
                    [b"\xff"] * n,
                    [[]] * n,
                    [1 << 62] * n,
                    [True] * n,
                )
                table = table.set_column(i, name, pa.array(rng.choice(odd)))
            case 4:
                values = column.to_pylist()
                values[rng.randrange(n)] = None
                table = table.set_column(i, name, pa.array(values, column.type))
            case 5:
                metadata = {k: edited(v, rng, deep + 1) for k, v in (table.schema.metadata or {b"a": b"{}"}).items()}
                table = table.replace_schema_metadata(metadata)
            case 6:
                table = table.slice(0, rng.randrange(n + 1))
            case _:
                table = pa.concat_tables([table] * 2)
    except (pa.ArrowException, TypeError):
        return damaged(data, rng)
    out = io.BytesIO()
    if parquet:
        pq.write_table(
            table, out, row_group_size=rng.choice((1, 3, 1000)), compression=rng.choice(("snappy", "none", "zstd"))
        )
    else:
        with (ipc.new_stream if stream else ipc.new_file)(out, table.schema) as writer:
            writer.write_table(table, max_chunksize=rng.choice((1, 3, 1000)))
    return out.getvalue()


def _half_table(data: bytes, rng: Random, deep: int) -> bytes:
    return _table(data, rng, deep) if rng.random() < 0.5 else damaged(data, rng)


def protobuf(data: bytes, rng: Random, deep: int = 0) -> bytes:
    """One field of a message changed, doubled or left out, at any depth; lengths above it are made right."""
    fields = list(_fields(data))
    if not fields:
        return damaged(data, rng)
    i = rng.randrange(len(fields))
    tag, kind, value = fields[i]
    match rng.randrange(8):
        case 0:
            del fields[i]
        case 1:
            fields.insert(rng.randrange(len(fields)), fields[i])
        case 2:
            fields[i] = rng.choice((0, tag >> 3, 1 << 28)) << 3 | rng.randrange(8), kind, value
        case 3:
            fields[i] = tag, kind, b"\xff" * rng.choice((1, 4, 9, 10, 11)) + rng.choice((b"", b"\1"))
        case _:
            inner = kind == 2 and deep < 6 and value and rng.random() < 0.8
            fields[i] = tag, kind, protobuf(value, rng, deep + 1) if inner else damaged(value, rng)
    return b"".join(_varint(tag) + (_varint(len(v)) if kind == 2 else b"") + v for tag, kind, v in fields)


def _fields(data: bytes) -> Any:
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        kind = tag & 7
        if kind == 2:
            size, at = _number(data, at)
        elif kind == 0:
            size = _number(data, at)[1] - at
        else:
            size = {1: 8, 5: 4}.get(kind, len(data) - at)
        yield tag, kind, data[at : at + size]
        at += size


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            break
    return value, at


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def records(data: bytes, rng: Random, deep: int = 0) -> bytes:
    """Raw values: numbers of their type that are odd, or rows cut out, doubled and swapped."""
    if rng.random() < 0.5 or len(data) < 16:
        return damaged(data, rng)
    dtype = np.dtype(rng.choice(("<f4", "<f8", "<i4", "<i8", "<u2", "<u4")))
    values = np.frombuffer(data[: len(data) // 8 * 8], dtype).copy()
    odd = (np.nan, np.inf, -np.inf, 1e300) if dtype.kind == "f" else (0, 1, np.iinfo(dtype).max, np.iinfo(dtype).min)
    with np.errstate(over="ignore"):
        values[rng.randrange(len(values))] = np.asarray(rng.choice(odd)).astype(dtype)
    return values.tobytes() + data[len(data) // 8 * 8 :]


_MAGIC: list[tuple[bytes, Callable[[bytes, Random, int], bytes]]] = [
    (b"\x1f\x8b", _gzip),
    (b"\x28\xb5\x2f\xfd", _zstd),
    (b"PK\x03\x04", _zip),
    (b"\x93NUMPY", _npy),
    (b"\x80\x02", _pickle),
    (b"\x80\x03", _pickle),
    (b"\x80\x04", _pickle),
    (b"\x80\x05", _pickle),
    (b"\x89HDF\r\n\x1a\n", _hdf5),
    (b"PAR1", _half_table),
    (b"ARROW1", _half_table),
    (b"\xff\xff\xff\xff", _half_table),
]
