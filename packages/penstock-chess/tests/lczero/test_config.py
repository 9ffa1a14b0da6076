"""Configurations: the text of protocol buffers, dicts and messages; names, defaults; what is wrong has its line."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import DataError, FormatError
from penstock_chess.lczero.binding import bind, load_config
from penstock_chess.lczero.config import (
    KINDS,
    ChunkUnpackerConfig,
    DataLoaderConfig,
    QueueConfig,
    StageConfig,
    TensorGeneratorConfig,
)
from penstock_chess.lczero.textproto import Entry, Text, Word, parse


def scalar(text: str) -> Any:
    (entry,) = parse(f"x: {text}")
    return entry.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"a\\n\\"b\\x41\\102"', 'a\n"bAB'),
        ("'it is \"so\"'", 'it is "so"'),
        ("'é\\?'", "é?"),
        ('"\\303\\251"', "é"),
        ('"one" \' two\'\n  "3"', "one two3"),
        ('"# no comment"', "# no comment"),
    ],
)
def test_strings(text: str, value: str) -> None:
    assert scalar(text) == Text(value)


@pytest.mark.parametrize("text", ["1", "-2.5e3", "0x1F", "BLOCK", "true", ".5f", "- 3"])
def test_words_are_kept_as_they_are_written(text: str) -> None:
    assert scalar(text) == Word(text.replace(" ", ""))


def test_messages_lists_comments_and_separators() -> None:
    text = "a { b: 1, c: 2; } # d: 3\na: < b: [3, 4] >\na { }"
    one, two = Entry("b", Word("1"), 1), Entry("c", Word("2"), 1)
    three, four = Entry("b", Word("3"), 2), Entry("b", Word("4"), 2)
    assert parse(text) == (Entry("a", (one, two), 1), Entry("a", (three, four), 2), Entry("a", (), 3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: ", "a value after ':'.*'the end' - at line 1"),
        ("a 1", "a value after ':', or a message in brackets, got '1'"),
        ("a { b: 1", "a field or '}', got 'the end'"),
        ('a: 1\nb: "x', "got '\"x' - at line 2"),
        ("}", "a field, got '}'"),
        ("a: [1 2]", "',' or ']', got '2'"),
        ("a: [1", "',' or ']', got 'the end'"),
        ("\n\na: $", "line 3"),
        ('a: "\\xff"', "UTF-8"),
        ("1: 2", "a field, got '1'"),
        ("a {" * 200, "at most 100 messages within each other"),
    ],
)
def test_what_is_no_text_format_is_an_error_with_its_line(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse(text)


def stage(options: str) -> Any:
    return load_config(f'stage {{ name: "x" {options} }}').stage[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stage_without_fields_has_the_defaults(kind: str) -> None:
    assert stage(f"{kind} {{}}").options == type(stage(f"{kind} {{}}").options)()


def test_the_defaults_are_the_originals() -> None:
    pool, sampler = stage("shuffling_chunk_pool {}").options, stage("shuffling_frame_sampler {}").options
    assert (pool.chunk_pool_size, pool.chunk_loading_threads, pool.output.queue_capacity) == (100_000, 4, 4)
    assert (sampler.reservoir_size_per_thread, stage("tensor_generator {}").options.batch_size) == (1_000_000, 1024)
    assert stage("chunk_rescorer {}").options.st_q_theta == pytest.approx(5 / 6)


def test_values_of_every_type() -> None:
    text = "chunk_rescorer { threads: 0x10 new_input_format: -1 dist_temp: 1 deblunder_width: .5f syzygy_paths: 'a,b' }"
    options = stage(text).options
    assert (options.threads, options.new_input_format, options.dist_temp) == (16, -1, 1.0)
    assert (options.deblunder_width, options.syzygy_paths) == (0.5, "a,b")
    assert stage("tensor_generator { threads: 017 }").options.threads == 15  # as C writes octals


@pytest.mark.parametrize("value", ["DROP_NEW", "1"])
def test_enumerations_by_name_and_number(value: str) -> None:
    text = f"tensor_generator {{ output {{ overflow_behavior: {value} }} }}"
    assert stage(text).options.output.overflow_behavior == "DROP_NEW"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('stage {\n nam: "x"\n}', "got 'nam'; did you mean 'name'\\? - at the configuration.stage.nam, line 2"),
        ("stage { name: 3 }", "expected a string, got 3"),
        ("stage { tensor_generator { batch_size: 0 } }", "expected 1 or more, got 0"),
        ("stage { tensor_generator { threads: -1 } }", "expected 0 or more, got -1"),
        ("stage { tensor_generator { batch_size: 1.5 } }", "expected an integer, got 1.5"),
        ("stage { tensor_generator { batch_size: true } }", "expected an integer, got true"),
        ("stage { chunk_rescorer { dist_temp: nan } }", "expected a number, got nan"),
        ("stage { tensor_generator: 3 }", "expected a message, got 3"),
        ("stage { name { } }", "expected a string, got a message"),
        ('stage { name: "a"\n name: "b" }', "expected 'name' once, got it 2 times .*line 2"),
        ("stage { tensor_generator { output { overflow_behavior: DROP } } }", r"'KEEP_NEWEST'\], got DROP"),
        ("stages {}", "did you mean 'stage'"),
    ],
)
def test_what_is_no_configuration_is_refused_and_says_where(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_config(text)


def test_dicts_have_the_same_names_and_are_as_strict() -> None:
    given = {"stage": [{"name": "t", "input": ["a"], "tensor_generator": {"batch_size": 7}}], "output": ["t"]}
    made = StageConfig("t", ("a",), tensor_generator=TensorGeneratorConfig(batch_size=7))
    assert load_config(given) == DataLoaderConfig((made,), ("t",))
    assert load_config({"data_loader": given}) == load_config(given)
    for wrong in ("7", True, 7.0, None):
        with pytest.raises(DataError, match="expected an integer"):
            load_config({"stage": [{"tensor_generator": {"batch_size": wrong}}]})
    with pytest.raises(DataError, match="did you mean 'batch_size'"):
        load_config({"stage": [{"tensor_generator": {"batchsize": 7}}]})


def test_one_value_of_a_repeated_field_needs_no_list() -> None:
    assert load_config({"output": "t", "stage": {"name": "t"}}).output == ("t",)


def test_a_dataclass_is_taken_as_it_is() -> None:
    config = DataLoaderConfig(output=("x",))
    assert load_config(config) is config
    assert bind(QueueConfig, {"name": "a"}) == QueueConfig("a")


class Message:
    """As a message of protocol buffers: it lists the fields that are set."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def ListFields(self) -> list[tuple[Any, Any]]:
        return [(SimpleNamespace(name=name), value) for name, value in self._fields.items()]


def test_messages_of_protocol_buffers_are_read_by_their_fields() -> None:
    queue = Message(queue_capacity=9, overflow_behavior=2)
    message = Message(stage=[Message(name="u", chunk_unpacker=Message(position_count=3, output=queue))], output=["u"])
    unpacker = ChunkUnpackerConfig(position_count=3, output=QueueConfig("", 9, "KEEP_NEWEST"))
    assert load_config(message) == DataLoaderConfig((StageConfig("u", chunk_unpacker=unpacker),), ("u",))


def test_of_a_training_configuration_the_part_of_the_loader_is_taken() -> None:
    text = 'name: "net" data_loader { output: "t" } model { encoder { heads: 32 } } training { lr: [0.1, 0.2] }'
    assert load_config(text) == DataLoaderConfig(output=("t",))


def test_anything_else_is_refused() -> None:
    with pytest.raises(DataError, match="expected text, a dict, a message or its bytes, got int"):
        load_config(5)
