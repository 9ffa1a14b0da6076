"""Stages wired by name: types on the way, splits, joins, positions that are kept; and what does not fit together."""

from __future__ import annotations

import pytest

from penstock.errors import PlanError
from penstock_chess.lczero.binding import load_config
from penstock_chess.lczero.graph import Graph

HEAD = """
stage { name: "files" file_path_provider { directory: "games" } }
stage { name: "sources" input: "files" chunk_source_loader {} }
"""
TAIL = """
stage { name: "frames" input: "pool" chunk_unpacker { position_count: 1 } }
stage { name: "tensors" input: "frames" tensor_generator {} }
output: "tensors"
"""
POOL = 'stage { name: "pool" input: "sources" shuffling_chunk_pool { chunk_pool_size: 5 } }'


def branch(name: str, part: str) -> str:
    return f"""
    stage {{ name: "pool_{name}" input: "split.{part}" shuffling_chunk_pool {{ chunk_pool_size: 5 }} }}
    stage {{ name: "frames_{name}" input: "pool_{name}" chunk_unpacker {{ position_count: 1 }} }}
    stage {{ name: "tensors_{name}" input: "frames_{name}" tensor_generator {{}} }}
    output: "{name}:tensors_{name}"
    """


SPLIT = (
    HEAD
    + 'stage { name: "split" input: "sources" chunk_source_splitter {'
    + ('output { name: "a" } output { name: "b" } weight: 9 weight: 1 } }')
)


def graph(text: str) -> Graph:
    return Graph(load_config(text))


def test_the_shortest_way() -> None:
    (found,) = graph(HEAD + POOL + TAIL).branches()
    (feed,) = found.feeds
    assert (found.alias, found.sampler, feed.rescorer, feed.splitter) == ("", None, None, None)
    assert feed.provider.directory == "games"
    assert feed.names["shuffling_chunk_pool"] == "pool"


def test_stages_may_come_in_any_order() -> None:
    (found,) = graph(TAIL + POOL + HEAD).branches()
    assert found.feeds[0].provider.directory == "games"


def test_a_rescorer_and_a_sampler_on_the_way() -> None:
    text = (
        HEAD
        + POOL
        + """
    stage { name: "rescored" input: "pool" chunk_rescorer { dist_temp: 2 } }
    stage { name: "frames" input: "rescored" chunk_unpacker { position_sampling_rate: 0.5 } }
    stage { name: "shuffled" input: "frames" shuffling_frame_sampler { reservoir_size_per_thread: 9 } }
    stage { name: "tensors" input: "shuffled" tensor_generator { batch_size: 3 } }
    output: "train:tensors"
    """
    )
    (found,) = graph(text).branches()
    assert found.alias == "train"
    assert found.sampler is not None
    assert found.sampler.reservoir_size_per_thread == 9
    assert found.feeds[0].rescorer is not None
    assert found.feeds[0].rescorer.dist_temp == 2.0


def test_a_split_has_an_output_for_each_part() -> None:
    made = graph(SPLIT + branch("train", "a") + branch("test", "b"))
    assert made.aliases == ("train", "test")
    assert [(b.alias, b.feeds[0].part) for b in made.branches()] == [("train", 0), ("test", 1)]


def test_a_part_that_nobody_reads_is_left_alone() -> None:
    (found,) = graph(SPLIT + branch("test", "b")).branches()
    assert found.feeds[0].part == 1


def test_a_join_of_two_pools() -> None:
    text = (
        HEAD
        + """
    stage { name: "new" input: "sources" shuffling_chunk_pool { chunk_pool_size: 5 } }
    stage { name: "old" input: "sources" simple_chunk_extractor {} }
    stage { name: "u1" input: "new" chunk_unpacker { position_count: 1 } }
    stage { name: "u2" input: "old" chunk_unpacker { position_count: 2 } }
    stage { name: "both" input: "u1" input: "u2" join_positions {} }
    stage { name: "tensors" input: "both" tensor_generator {} }
    output: "tensors"
    """
    )
    (found,) = graph(text).branches()
    assert [feed.unpacker.position_count for feed in found.feeds] == [1, 2]


CACHED = (
    HEAD
    + """
stage { name: "pool" input: "sources" input: "frames.later" shuffling_chunk_pool {
    cachehit_output { name: "kept" } position_cache_size: 1000 } }
stage { name: "frames" input: "pool" chunk_unpacker {
    position_count: 1 prefetch_count: 15 prefetch_output { name: "later" } } }
stage { name: "both" input: "frames" input: "pool.kept" join_positions {} }
stage { name: "tensors" input: "both" tensor_generator {} }
output: "tensors"
"""
)


def test_positions_that_are_kept_are_one_way_with_their_pool() -> None:
    (found,) = graph(CACHED).branches()
    (feed,) = found.feeds
    assert feed.unpacker.prefetch_count == 15


def test_later_configurations_add_stages() -> None:
    made = graph(HEAD)
    with pytest.raises(PlanError, match="at least one output"):
        made.branches()
    made.add(load_config(POOL + TAIL))
    assert made.aliases == ("",)
    assert len(made.branches()) == 1


def test_what_cannot_be_added_changes_nothing() -> None:
    made = graph(HEAD + POOL + TAIL)
    with pytest.raises(PlanError, match="different names"):
        made.add(load_config('stage { name: "more" file_path_provider {} }' + POOL))
    assert len(made.branches()) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + TAIL, "expected a stage for stage 'frames' to read among .*, got 'pool'"),
        (HEAD + POOL + TAIL.replace('"pool"', '"pol"'), "to read, as 'pool', got 'pol'"),
        (HEAD + TAIL.replace('"pool"', '"sources"'), "expected Chunks for stage 'frames' .*, got Sources of 'sources'"),
        (HEAD + POOL + TAIL.replace('input: "frames"', 'input: "pool"'), "expected Frames for stage 'tensors'"),
        (HEAD + HEAD, "different names, got 'files' twice"),
        ('stage { name: "" file_path_provider {} }', "a name without"),
        ('stage { name: "a.b" file_path_provider {} }', "a name without"),
        ('stage { name: "a" }', r"exactly one kind for stage 'a', got \[\]"),
        ('stage { name: "a" file_path_provider {} chunk_unpacker {} }', "exactly one kind"),
        ('stage { name: "a" input: "a" file_path_provider {} }', "expected 0 inputs for stage 'a'"),
        ('stage { name: "a" chunk_unpacker {} }', "expected 1 input for stage 'a'"),
        ('stage { name: "a" join_positions {} }', "expected 1 input for stage 'a'"),
        (HEAD + POOL + TAIL + 'output: "frames"', "twice"),
        (HEAD + POOL + TAIL + 'output: "b:frames"', "expected a tensor_generator for output 'b:frames'"),
        (SPLIT + branch("x", "c"), r"one of the outputs \['a', 'b'\] of stage 'split', got 'c'"),
        (CACHED.replace("prefetch_output", "output"), "expected Requests for stage 'pool'"),
        (SPLIT.replace("weight: 1 ", ""), "2 outputs and 1 weights"),
        (SPLIT.replace('"b"', '"a"'), "outputs of different names"),
    ],
)
def test_what_does_not_fit_is_said_when_it_is_added(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        graph(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + POOL + TAIL + 'stage { name: "idle" file_path_provider {} }', r"lead to an output, .*\['idle'\]"),
        (HEAD + POOL + TAIL + 'stage { name: "t" input: "frames" tensor_generator {} } output: "b:t"', "one reader of"),
        (
            HEAD + POOL + TAIL.replace('"pool"', '"r1"') + 'stage { name: "r1" input: "r2" chunk_rescorer {} }'
            'stage { name: "r2" input: "pool" chunk_rescorer {} }',
            "expected one chunk_rescorer",
        ),
        (
            HEAD
            + POOL
            + TAIL.replace('input: "frames"', 'input: "s1"')
            + 'stage { name: "s1" input: "s2" shuffling_frame_sampler {} }'
            + 'stage { name: "s2" input: "frames" shuffling_frame_sampler {} }',
            "expected a chunk_unpacker before the sampler, got 's2'",
        ),
        (
            HEAD + POOL + TAIL.replace("position_count: 1", 'position_count: 1 prefetch_output { name: "later" }'),
            "expected the prefetch_output of 'frames' to be the second input of its pool",
        ),
        (CACHED.replace('input: "frames" input: "pool.kept"', 'input: "pool.kept"'), "unpackers of the pools"),
    ],
)
def test_what_has_no_meaning_is_said_when_it_is_wired(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        graph(text).branches()
