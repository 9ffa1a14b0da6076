from __future__ import annotations

from collections import OrderedDict

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

from penstock.core import spaces
from penstock.core.space_columns import leaf_field, space_fields
from penstock.errors import SpecError
from penstock.recording.spaces import from_gymnasium, to_gymnasium

DTYPES = [np.float16, np.float32, np.float64, np.int8, np.int64, np.uint8, np.uint32, np.bool_]


def test_every_space_comes_back_equal(space):
    back = to_gymnasium(from_gymnasium(space))
    assert back == space
    assert type(back) is type(space)


@given(st.sampled_from(DTYPES), array_shapes(min_dims=1, max_dims=3, max_side=3), st.integers(0, 9))
def test_boxes_keep_dtype_shape_and_bounds(dtype, shape, seed):
    bounds = np.sort(np.random.default_rng(seed).integers(0, 2, (2, *shape)), axis=0).astype(dtype)
    box = gymnasium.spaces.Box(bounds[0], bounds[1], shape, dtype)
    ours = from_gymnasium(box)
    assert ours.dtype == box.dtype
    np.testing.assert_array_equal(ours.low, box.low)
    np.testing.assert_array_equal(ours.high, box.high)
    assert to_gymnasium(ours) == box


def test_infinite_bounds_survive():
    box = gymnasium.spaces.Box(np.array([-np.inf, 0], np.float32), np.array([1, np.inf], np.float32))
    back = to_gymnasium(from_gymnasium(box))
    assert back == box
    assert back.bounded_below.tolist() == [False, True]


def test_details_that_equality_does_not_see():
    assert to_gymnasium(from_gymnasium(gymnasium.spaces.Discrete(3, start=2, dtype=np.int16))).dtype == np.int16
    multi = gymnasium.spaces.MultiDiscrete([2, 3], dtype=np.int32, start=[-1, 4])
    assert to_gymnasium(from_gymnasium(multi)).start.tolist() == [-1, 4]
    text = gymnasium.spaces.Text(4, min_length=2, charset="zyx")
    assert to_gymnasium(from_gymnasium(text)).character_list == text.character_list


def test_the_twin_has_its_own_bounds():
    box = gymnasium.spaces.Box(np.zeros(2, np.float32), np.ones(2, np.float32))
    ours = from_gymnasium(box)
    box.low[0] = -5
    assert ours.low.tolist() == [0, 0]


class Own(gymnasium.Space):
    pass


@pytest.mark.parametrize(
    "bad",
    [
        gymnasium.spaces.Graph(gymnasium.spaces.Discrete(2), None),
        gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(2)),
        gymnasium.spaces.OneOf([gymnasium.spaces.Discrete(2)]),
        Own(),
    ],
    ids=lambda s: type(s).__name__,
)
def test_spaces_without_columns_say_what_to_do(bad):
    for outer in (bad, gymnasium.spaces.Tuple([bad]), gymnasium.spaces.Dict({"a": bad})):
        with pytest.raises(SpecError, match="wrap the environment"):
            from_gymnasium(outer)


def test_keys_must_be_strings_that_make_paths():
    with pytest.raises(SpecError, match="to be strings, got 3"):
        from_gymnasium(gymnasium.spaces.Dict(OrderedDict([(3, gymnasium.spaces.Discrete(2))])))
    with pytest.raises(SpecError, match="without '/'"):
        from_gymnasium(gymnasium.spaces.Dict({"a/b": gymnasium.spaces.Discrete(2)}))


def test_to_gymnasium_refuses_what_it_does_not_know():
    with pytest.raises(SpecError, match="expected a space among Box"):
        to_gymnasium("Box")


def test_fields_of_leaves(space):
    ours = from_gymnasium(space)
    fields = space_fields(ours, "observations", "boundary")
    assert [p.removeprefix("observations").removeprefix("/") for p in fields] == [path for path, _ in ours.leaves()]
    for field, (_, leaf) in zip(fields.values(), ours.leaves(), strict=True):
        twin = to_gymnasium(leaf)
        assert field.align == "boundary"
        if isinstance(leaf, spaces.Text):
            assert field.kind == "text"
        else:
            assert (field.dtype, field.shape) == (twin.dtype, twin.shape)


def test_composite_spaces_have_no_field():
    with pytest.raises(SpecError, match="column of its own"):
        leaf_field(spaces.Tuple(()), "step")
