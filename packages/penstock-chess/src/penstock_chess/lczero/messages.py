"""Protocol buffer messages of Leela Chess Zero's loader: a table of their fields, and classes made from the table.

The classes live in a separate descriptor pool, so that they never clash with the original's generated code, which
registers the same names in the default pool. Both sides understand the bytes.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.errors import DataError, require
from penstock_chess.lczero.config import FrameFormat, OverflowBehavior

EXTRA = "protobuf"
REPEATED = "*"  # before the type of a field that may come several times

# Package -> message -> field -> (number, type). Types are scalars, enumerations or messages of the same package.
FIELDS: dict[str, dict[str, dict[str, tuple[int, str]]]] = {
    "lczero.training": {
        "QueueConfig": {
            "name": (1, "string"),
            "queue_capacity": (2, "uint64"),
            "overflow_behavior": (3, "QueueConfig.OverflowBehavior"),
        },
        "FilePathProviderConfig": {"directory": (1, "string"), "output": (2, "QueueConfig")},
        "ChunkSourceLoaderConfig": {
            "threads": (1, "uint64"),
            "output": (2, "QueueConfig"),
            "frame_format": (3, "ChunkSourceLoaderConfig.FrameFormat"),
        },
        "PositionSamplingConfig": {
            "diff_focus_q_weight": (1, "float"),
            "diff_focus_pol_scale": (2, "float"),
            "diff_focus_alpha": (3, "float"),
            "diff_focus_beta": (4, "float"),
            "diff_focus_gamma": (5, "float"),
            "diff_focus_tau": (6, "float"),
            "default_weight": (7, "float"),
        },
        "ShufflingChunkPoolConfig": {
            "chunk_pool_size": (1, "uint64"),
            "source_ingestion_threads": (3, "uint64"),
            "chunk_loading_threads": (4, "uint64"),
            "output": (5, "QueueConfig"),
            "hanse_sampling_threshold": (6, "uint64"),
            "hanse_sampling_gamma": (7, "double"),
            "cachehit_output": (8, "QueueConfig"),
            "position_cache_size": (9, "uint64"),
            "caching_threads": (10, "uint64"),
            "position_sampling": (11, "PositionSamplingConfig"),
        },
        "ChunkRescorerConfig": {
            "threads": (1, "uint64"),
            "output": (2, "QueueConfig"),
            "syzygy_paths": (3, "string"),
            "dist_temp": (4, "float"),
            "dist_offset": (5, "float"),
            "dtz_boost": (6, "float"),
            "new_input_format": (7, "int32"),
            "deblunder_threshold": (8, "float"),
            "deblunder_width": (9, "float"),
            "gaviota_paths": (11, "string"),
            "st_q_theta": (12, "float"),
        },
        "ChunkUnpackerConfig": {
            "threads": (1, "uint64"),
            "position_sampling_rate": (2, "float"),
            "position_count": (3, "uint32"),
            "output": (4, "QueueConfig"),
            "prefetch_count": (5, "uint32"),
            "prefetch_output": (6, "QueueConfig"),
            "position_sampling": (7, "PositionSamplingConfig"),
        },
        "ShufflingFrameSamplerConfig": {
            "threads": (1, "uint64"),
            "reservoir_size_per_thread": (2, "uint64"),
            "output": (3, "QueueConfig"),
        },
        "TensorGeneratorConfig": {"threads": (1, "uint64"), "batch_size": (2, "uint64"), "output": (3, "QueueConfig")},
        "ChunkSourceSplitterConfig": {"output": (1, "*QueueConfig"), "weight": (2, "*uint64")},
        "SimpleChunkExtractorConfig": {"output": (1, "QueueConfig")},
        "JoinPositionsConfig": {"output": (1, "QueueConfig")},
        "StageConfig": {
            "name": (1, "string"),
            "input": (2, "*string"),
            "file_path_provider": (4, "FilePathProviderConfig"),
            "chunk_source_loader": (5, "ChunkSourceLoaderConfig"),
            "shuffling_chunk_pool": (6, "ShufflingChunkPoolConfig"),
            "chunk_unpacker": (7, "ChunkUnpackerConfig"),
            "shuffling_frame_sampler": (8, "ShufflingFrameSamplerConfig"),
            "tensor_generator": (9, "TensorGeneratorConfig"),
            "chunk_rescorer": (10, "ChunkRescorerConfig"),
            "chunk_source_splitter": (11, "ChunkSourceSplitterConfig"),
            "simple_chunk_extractor": (12, "SimpleChunkExtractorConfig"),
            "join_positions": (13, "JoinPositionsConfig"),
        },
        "DataLoaderConfig": {"stage": (1, "*StageConfig"), "output": (2, "*string")},
        "ShufflingChunkPoolControlRequest": {"reset_chunk_anchor": (1, "bool"), "set_chunk_anchor": (2, "string")},
        "StageControlRequest": {"chunk_pool_request": (1, "ShufflingChunkPoolControlRequest")},
        "ShufflingChunkPoolControlResponse": {"chunk_anchor": (1, "string"), "chunks_since_anchor": (2, "int32")},
        "StageControlResponse": {"chunk_pool_response": (1, "ShufflingChunkPoolControlResponse")},
    },
    "lczero": {
        "LoadMetricProto": {"name": (1, "string"), "load_seconds": (2, "double"), "total_seconds": (3, "double")},
        "StatisticsProtoInt64": {
            "min": (1, "int64"),
            "max": (2, "int64"),
            "sum": (3, "int64"),
            "count": (4, "int64"),
            "latest": (5, "int64"),
        },
        "StatisticsProtoDouble": {
            "name": (1, "string"),
            "min": (2, "double"),
            "max": (3, "double"),
            "sum": (4, "double"),
            "count": (5, "int64"),
            "latest": (6, "double"),
        },
        "QueueMetricProto": {
            "name": (1, "string"),
            "put_count": (2, "uint64"),
            "get_count": (3, "uint64"),
            "drop_count": (4, "uint64"),
            "queue_fullness": (5, "StatisticsProtoInt64"),
            "queue_capacity": (6, "uint64"),
        },
        "CountMetricProto": {"name": (1, "string"), "count": (2, "uint64")},
        "GaugeMetricProto": {"name": (1, "string"), "value": (2, "uint64"), "capacity": (3, "uint64")},
        "StageMetricProto": {
            "name": (1, "string"),
            "load_metrics": (3, "*LoadMetricProto"),
            "queue_metrics": (4, "*QueueMetricProto"),
            "count_metrics": (5, "*CountMetricProto"),
            "last_chunk_key": (8, "string"),
            "anchor": (9, "string"),
            "gauge_metrics": (11, "*GaugeMetricProto"),
            "statistics_metrics": (12, "*StatisticsProtoDouble"),
        },
        "DataLoaderMetricsProto": {"stage_metrics": (1, "*StageMetricProto")},
    },
}
ENUMS = {
    "QueueConfig.OverflowBehavior": typing.get_args(OverflowBehavior),
    "ChunkSourceLoaderConfig.FrameFormat": typing.get_args(FrameFormat),
}
CONFIG = "lczero.training.DataLoaderConfig"
REQUEST = "lczero.training.StageControlRequest"
RESPONSE = "lczero.training.StageControlResponse"
METRICS = "lczero.DataLoaderMetricsProto"


def message_class(name: str) -> Any:
    """Return the class of a message by its full name, made from the table above."""
    factory = require("google.protobuf.message_factory", EXTRA, "penstock-chess")
    return factory.GetMessageClass(_pool().FindMessageTypeByName(name))


def serialize(name: str, fields: Mapping[str, Any]) -> bytes:
    """Return the bytes of a message. `fields` has dicts for messages, and lists for fields that come several times."""
    return message_class(name)(**fields).SerializeToString()


def parse_message(name: str, data: bytes, where: str) -> Any:
    message = message_class(name)()
    try:
        message.ParseFromString(data)
    except require("google.protobuf.message", EXTRA, "penstock-chess").DecodeError as error:
        raise DataError(f"expected the bytes of a {name}, got {len(data)} others ({error}) - at {where}") from error
    refuse_unknown(message, where)
    return message


def refuse_unknown(message: Any, where: str) -> None:
    """Raise `DataError` for an unknown field: an option that would be ignored."""
    for name, number, place in _unknown(message, where):
        raise DataError(f"expected the known fields of {name}, got number {number} - at {place}")


def response_to(request: object, fields: Mapping[str, Any]) -> Any:
    """Return a `StageControlResponse` of the generated code that the request is of.

    For a request in bytes, that is the code in the default descriptor pool. Where there is none, the class is ours.
    """
    factory = require("google.protobuf.message_factory", EXTRA, "penstock-chess")
    name = RESPONSE.rpartition(".")[2]
    descriptor: Any = getattr(request, "DESCRIPTOR", None)
    message_type = None if descriptor is None else descriptor.file.message_types_by_name.get(name)
    if message_type is None:
        try:
            pool: Any = require("google.protobuf.descriptor_pool", EXTRA, "penstock-chess").Default()
            message_type = pool.FindMessageTypeByName(RESPONSE)
        except KeyError:
            return message_class(RESPONSE)(**fields)
    return factory.GetMessageClass(message_type)(**fields)


@functools.cache
def _pool() -> Any:
    """A descriptor pool that has the messages of the table."""
    descriptors, pool = (
        require("google.protobuf.descriptor_pb2", EXTRA, "penstock-chess"),
        require("google.protobuf.descriptor_pool", EXTRA, "penstock-chess"),
    )
    own_pool = pool.DescriptorPool()
    for package, messages in FIELDS.items():
        file = descriptors.FileDescriptorProto(name=f"penstock/{package}.proto", package=package, syntax="proto2")
        for name, fields in messages.items():
            message = file.message_type.add(name=name)
            for enum, values in ENUMS.items():
                if package == "lczero.training" and enum.partition(".")[0] == name:
                    numbered = [{"name": value, "number": i} for i, value in enumerate(values)]
                    message.enum_type.add(name=enum.partition(".")[2], value=numbered)
            for field, (number, kind) in fields.items():
                message.field.add(
                    name=field, number=number, **_described(package, kind, descriptors.FieldDescriptorProto)
                )
        own_pool.AddSerializedFile(file.SerializeToString())
    return own_pool


def _described(package: str, kind: str, field: Any) -> dict[str, Any]:
    """The label and the type of a field, as its descriptor says them."""
    label = field.LABEL_REPEATED if kind.startswith(REPEATED) else field.LABEL_OPTIONAL
    kind = kind.removeprefix(REPEATED)
    if kind in ENUMS:
        return {"label": label, "type": field.TYPE_ENUM, "type_name": f".{package}.{kind}"}
    if kind in FIELDS[package]:
        return {"label": label, "type": field.TYPE_MESSAGE, "type_name": f".{package}.{kind}"}
    return {"label": label, "type": field.Type.Value(f"TYPE_{kind.upper()}")}


def _unknown(message: Any, where: str) -> Iterator[tuple[str, int, str]]:
    """Message, number and place of each field that the class of a message lacks, in it and in those within."""
    for field in require("google.protobuf.unknown_fields", EXTRA, "penstock-chess").UnknownFieldSet(message):
        yield message.DESCRIPTOR.full_name, field.field_number, where
    for about, value in message.ListFields():
        if about.message_type is not None:
            for one in [value] if hasattr(value, "ListFields") else value:
                yield from _unknown(one, f"{where}.{about.name}")
