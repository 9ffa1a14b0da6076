"""Protocol buffers: messages of the original's generated classes are understood, and it understands the answers."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import threading
import types
import weakref
from pathlib import Path
from typing import Any

import pytest

from lczero.conftest import GOLDEN, config_of, digests, split_config
from penstock.errors import DataError, MissingExtraError, PlanError
from penstock_chess.lczero import DataLoader, config, load_config, messages
from penstock_chess.lczero.binding import load_request
from penstock_chess.lczero.history import Fullness, History
from penstock_chess.lczero.messages import CONFIG, FIELDS, METRICS, REQUEST, RESPONSE, message_class, serialize

GOLDEN_MESSAGES = GOLDEN / "messages"
# As the original's generated classes write them.
ASK, SET_TO_NOTHING, RESET = b"\n\x00", b"\n\x02\x12\x00", b"\n\x02\x08\x01"
NO_ANCHOR, ANSWER = b"\n\x04\n\x00\x10\x02", b"\n\x16\n\x12training.700027.gz\x10\x02"


def message_of(name: str, text: str) -> Any:
    """A message of our classes from text."""
    from google.protobuf import text_format

    return text_format.Parse(text, message_class(name)())


def test_the_table_has_the_fields_of_the_dataclasses() -> None:
    for name, fields in FIELDS["lczero.training"].items():
        own = {field.name for field in dataclasses.fields(getattr(config, name))}
        extra = {"weight"} if name == "JoinPositionsConfig" else {"chunk_validator"} if name == "StageConfig" else set()
        assert set(fields) == own - extra, name


def test_a_configuration_in_bytes_is_the_same_as_its_text() -> None:
    text, data = (GOLDEN_MESSAGES / name for name in ("config.textproto", "config.binpb"))
    wanted = load_config(text.read_text())
    assert load_config(data.read_bytes()) == wanted
    assert load_config(messages.parse_message(CONFIG, data.read_bytes(), "it")) == wanted
    stages = {stage.name: stage for stage in wanted.stage}
    assert stages["some"].options == config.ChunkUnpackerConfig(position_sampling_rate=0.03)


def test_floats_of_32_bits_and_of_64_are_as_in_text() -> None:
    message = message_class(CONFIG)(stage=[{"name": "p"}])
    message.stage[0].chunk_unpacker.position_sampling_rate = 1 / 3
    message.stage[0].shuffling_chunk_pool.hanse_sampling_gamma = 1 / 3
    (stage,) = load_config(message.SerializeToString()).stage
    assert stage.chunk_unpacker is not None
    assert stage.shuffling_chunk_pool is not None
    assert stage.chunk_unpacker.position_sampling_rate == 0.33333334
    assert stage.shuffling_chunk_pool.hanse_sampling_gamma == 1 / 3


def test_figures_are_written_as_the_original_writes_them() -> None:
    fields = json.loads((GOLDEN_MESSAGES / "metrics.json").read_text())
    assert serialize(METRICS, fields) == (GOLDEN_MESSAGES / "metrics.binpb").read_bytes()


def test_requests_are_read_as_the_original_writes_them() -> None:
    pool = config.ShufflingChunkPoolControlRequest
    assert load_request(b"").chunk_pool_request is None
    assert load_request(ASK).chunk_pool_request == pool()
    assert load_request(SET_TO_NOTHING).chunk_pool_request == pool(set_chunk_anchor="")
    assert load_request(RESET).chunk_pool_request == pool(reset_chunk_anchor=True)


def test_of_a_training_configuration_the_part_of_the_loader_is_taken() -> None:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="root.proto", package="test", syntax="proto2")
    loader = file.message_type.add(name="Loader")
    loader.field.add(name="output", number=2, label=field.LABEL_REPEATED, type=field.TYPE_STRING)
    root = file.message_type.add(name="Root")
    root.field.add(name="name", number=1, label=field.LABEL_OPTIONAL, type=field.TYPE_STRING)
    kind = {"type": field.TYPE_MESSAGE, "type_name": ".test.Loader"}
    root.field.add(name="data_loader", number=3, label=field.LABEL_OPTIONAL, **kind)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    made: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("test.Root"))
    assert load_config(made(name="net", data_loader={"output": ["t"]})).output == ("t",)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"garbage", "expected the bytes of a lczero.training.DataLoaderConfig"),
        (b"\x50\x01", "number 10 - at the configuration"),
        (
            b"\n\x03\xf8\x07\x01",
            "fields of lczero.training.StageConfig, got number 127 - at .*configuration.stage",
        ),
        (b"\n\x07\x12\x01a\x12\x02\xff\xfe", "expected a string, got b"),
        # A way of dropping that nobody knows: closed enumerations keep it as an unknown field.
        (b"\n\x06J\x04\x1a\x02\x18\x07", "got number 3 - at the configuration.stage.tensor_generator.output"),
    ],
)
def test_bytes_of_something_else_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_config(data)


def test_fields_that_a_message_brings_and_nobody_knows_are_refused() -> None:
    message = message_class(REQUEST).FromString(ASK + b"\x50\x01")
    with pytest.raises(DataError, match="got number 10 - at the request"):
        load_request(message)


def test_a_loader_is_asked_and_answers_in_messages() -> None:
    text = config_of(GOLDEN / "gz", rescorer="", pool="chunk_pool_size: 9")
    data = message_of(CONFIG, text).SerializeToString()
    with DataLoader(text, seed=1, follow=False) as one, DataLoader(data, seed=1, follow=False) as two:
        assert digests(one) == digests(two)
        ((_, before),) = two.send_control_message(ASK)
        answers = two.send_control_message(RESET)
        figures, spent = two.get_aggregate_ending_now(math.inf, True)
        short, _ = two.get_bucket_metrics(0, False)
    assert before.SerializeToString() == NO_ANCHOR
    ((name, answer),) = answers
    assert (name, answer.SerializeToString()) == ("pool", ANSWER)
    assert answer.HasField("chunk_pool_response")
    assert isinstance(figures, bytes)
    assert isinstance(short, bytes)
    assert spent > 0
    metrics = message_class(METRICS)()
    metrics.ParseFromString(figures)
    assert [stage.name for stage in metrics.stage_metrics] == [stage.name for stage in load_config(text).stage]


def test_figures_have_all_that_a_display_looks_at() -> None:
    text = config_of(GOLDEN / "gz", rescorer="", pool="hanse_sampling_threshold: 1", unpacker="position_count: 4")
    with DataLoader(text, follow=False, passes=3, protobuf=True) as loader:
        frames = sum(len(batch[0]) for batch in loader)
        data, _ = loader.get_aggregate_ending_now(math.inf)
    stages = {stage.name: stage for stage in message_class(METRICS).FromString(data).stage_metrics}
    for stage in stages.values():
        (queue,) = stage.queue_metrics
        assert queue.get_count > 0, stage.name
        assert queue.name == ("" if stage.name in ("pool", "frames") else "output")
    assert [load.name for load in stages["pool"].load_metrics] == ["source_ingestion", "chunk_loading"]
    assert {name: stages[name].queue_metrics[0].get_count for name in ("files", "rescored", "frames", "shuffled")} == {
        "files": 2,
        "rescored": stages["pool"].queue_metrics[0].get_count,
        "frames": frames,
        "shuffled": frames,
    }
    full = stages["tensors"].queue_metrics[0]
    assert full.HasField("queue_fullness")
    assert full.queue_fullness.count >= 1
    assert full.queue_capacity >= full.queue_fullness.max
    counts = {count.name: count.count for count in stages["pool"].count_metrics}
    assert counts["hanse_cache_misses"] + counts["hanse_cache_hits"] == 6
    assert counts["hanse_cache_misses"] >= 2  # more where two threads looked at one chunk at the same time
    assert counts["hanse_rejected"] + frames // 4 == 6
    (weights,) = stages["pool"].statistics_metrics
    assert (weights.name, weights.count) == ("chunk_weight", 2)
    assert weights.min <= weights.sum / 2 <= weights.max
    gauges = {gauge.name: gauge for gauge in stages["pool"].gauge_metrics}
    assert gauges["chunks_current"].HasField("capacity")
    assert not gauges["chunk_sources"].HasField("capacity")
    assert stages["sources"].last_chunk_key == "training.700027.gz"
    assert not stages["pool"].HasField("last_chunk_key")
    assert [gauges[f"chunks_{name}"].value for name in ("expected", "read", "failed", "torn")] == [2, 2, 0, 0]


def test_each_output_of_a_splitter_has_its_figures() -> None:
    with DataLoader(split_config(GOLDEN / "formats"), follow=False, protobuf=True) as loader:
        loader.start()
        data, _ = loader.get_aggregate_ending_now(math.inf)
    stages = {stage.name: stage for stage in message_class(METRICS).FromString(data).stage_metrics}
    assert [(queue.name, queue.put_count) for queue in stages["split"].queue_metrics] == [("train", 12), ("test", 12)]


@pytest.fixture
def generated() -> Any:
    """Modules as the original's generated code: its own classes of the same names, in another descriptor pool."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto()
    message_class(REQUEST).DESCRIPTOR.file.CopyToProto(file)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    classes = [message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in (REQUEST, RESPONSE)]
    return types.SimpleNamespace(StageControlRequest=classes[0], StageControlResponse=classes[1])


def test_an_answer_is_of_the_code_that_the_request_is_of(generated: Any) -> None:
    request = generated.StageControlRequest()
    request.chunk_pool_request.reset_chunk_anchor = True
    with DataLoader(config_of(GOLDEN / "gz"), follow=False) as loader:
        loader.start()
        ((_, answer),) = loader.send_control_message(request)
        assert isinstance(answer, generated.StageControlResponse)
        assert not isinstance(answer, message_class(RESPONSE))
        assert answer.SerializeToString() == ANSWER
        assert loader.send_control_message(generated.StageControlRequest()) == []
        # To a dict, the answer is a dataclass.
        ((_, plain),) = loader.send_control_message({"chunk_pool_request": {}})
        assert plain == config.StageControlResponse(config.ShufflingChunkPoolControlResponse("training.700027.gz", 0))


def test_an_answer_to_bytes_is_of_the_code_that_is_loaded(generated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from google.protobuf import descriptor_pool

    assert isinstance(messages.response_to(ASK, {}), message_class(RESPONSE))
    pool = generated.StageControlRequest.DESCRIPTOR.file.pool
    monkeypatch.setattr(descriptor_pool, "Default", lambda: pool)
    assert isinstance(messages.response_to(ASK, {}), generated.StageControlResponse)


def test_stages_are_added_in_bytes() -> None:
    head, _, tail = config_of(GOLDEN / "gz").partition('stage { name: "frames"')
    loader = DataLoader(message_of(CONFIG, head).SerializeToString(), follow=False)
    loader.add_stages(message_of(CONFIG, 'stage { name: "frames"' + tail).SerializeToString())
    with loader:
        assert len(next(loader)) == 3


def test_without_the_extra_there_are_dicts_and_bytes_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    data = message_of(CONFIG, config_of(GOLDEN / "gz")).SerializeToString()
    for name in [name for name in sys.modules if name.startswith("google.protobuf")]:
        monkeypatch.setitem(sys.modules, name, None)
    text = config_of(GOLDEN / "gz")
    with DataLoader(text, follow=False) as loader:
        next(loader)
        assert isinstance(loader.get_bucket_metrics(3)[0], dict)
    for wanted in (lambda: DataLoader(data), lambda: DataLoader(text, protobuf=True)):
        with pytest.raises(MissingExtraError, match=r"penstock-chess\[protobuf\]"):
            wanted()


@pytest.mark.parametrize("period", [128, -129, 0.5, True])
def test_a_period_that_is_none_is_refused(period: Any) -> None:
    with DataLoader(config_of(GOLDEN / "gz"), follow=False) as loader:
        with pytest.raises(PlanError, match="expected a period from -128 to 127"):
            loader.get_bucket_metrics(period)
        for seconds in (-1.0, math.nan):
            with pytest.raises(PlanError, match="zero seconds or more"):
                loader.get_aggregate_ending_now(seconds)
        loader.get_bucket_metrics(127)


def test_the_thread_that_looks_at_figures_ends_with_the_loader() -> None:
    def watching() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "penstock lczero figures"}

    before = watching()
    loader = DataLoader(config_of(GOLDEN / "gz"), follow=False)
    next(loader)
    (mine,) = watching() - before
    held = weakref.ref(loader)
    loader.stop()
    mine.join(60)
    assert not mine.is_alive()
    del loader
    assert held() is None


def test_the_history_sums_up_how_full_queues_were() -> None:
    history, fills = History(finest=1.0), [(7 * i) % 11 for i in range(300)]
    for i, fill in enumerate(fills):
        history.add({"time": float(i), "stages": {"tensors": {"queue": {"fill": fill}}, "files": {"queue": {}}}})
    assert len(history) < 40
    begin = int(history.at(299.0 - 20)["time"])
    found = history.fullness(begin, 299.0)
    seen = fills[begin + 1 :]
    assert found == {"tensors": Fullness(min(seen), max(seen), sum(seen), len(seen), seen[-1])}
    assert history.fullness(-1.0, math.inf)["tensors"].looks == 300


def test_settings_without_effect_are_named_in_one_warning() -> None:
    text = config_of(GOLDEN / "gz", unpacker="position_sampling_rate: 1 output { queue_capacity: 16 }")
    text = text.replace("chunk_source_loader {}", "chunk_source_loader { output { queue_capacity: 16 } }")
    expected = r"without effect: queue_capacity of \['sources', 'frames'\], as what waits"
    with pytest.warns(UserWarning, match=expected) as warned, DataLoader(text, follow=False) as loader:
        next(loader)
    assert [Path(warning.filename).name for warning in warned] == [Path(__file__).name]


def test_threads_are_at_least_as_many_as_a_stage_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    text = config_of(GOLDEN / "gz").replace("chunk_source_loader {}", "chunk_source_loader { threads: 7 }")
    for asked, threads in (("threads: 5", 5), ("threads: 1", 2), ("", 2)):
        loader = DataLoader(text.replace("batch_size: 50", f"batch_size: 50 {asked}"), follow=False)
        figures, _ = loader.get_aggregate_ending_now(math.inf)
        (pipeline,) = loader.pipelines.values()
        assert pipeline.options.threads == threads
        loads = {stage["name"]: stage["load_metrics"][0]["total_seconds"] for stage in figures["stage_metrics"][1:2]}
        assert set(loads) == {"sources"}
        loader.stop()
