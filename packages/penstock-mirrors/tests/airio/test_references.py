"""The packs and features of AirIO's and SeqIO's own tests. See tests/golden/packing/PROVENANCE.airio.md."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.columns import Columns
from penstock_mirrors.airio import (
    AirIOInjectedRuntimeArgs,
    MapFnTransform,
    PenstockDataSource,
    Task,
    feature_converters,
)
from penstock_mirrors.airio.feature_converters import make_autoregressive_inputs
from penstock_mirrors.airio.packing import (
    MultiBinPacker,
    NoamPacker,
    PackPreprocessor,
    PlannedPacker,
    SingleBinTruePackIterPreprocessor,
)
from penstock_mirrors.airio.preprocessors import pad, remove_features_not_in_sequence_lengths, trim

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "packing"


def cases(name: str, *, leaving: str = "nothing", only: str = "") -> Any:
    found = json.loads((GOLDEN / f"{name}.json").read_text())["cases"]
    chosen = [case for case in found if only in case["id"] and leaving not in case["id"]]
    return [pytest.param(case, id=case["id"].split(":")[1]) for case in chosen]


def array(value: Any) -> Any:
    if isinstance(value, dict):
        return np.array(value["__array__"], value["dtype"])
    return np.array(value, np.int64) if len(value) else np.zeros(0, np.int64)


def by_name(case: dict[str, Any]) -> tuple[dict[str, int], list[dict[str, Any]], list[dict[str, Any]]]:
    """Lengths, inputs and outputs by feature; the ones that have no name are called `x`."""
    lengths, inputs, outputs = case["feature_lengths"], case["input"], case["output"]
    if isinstance(lengths, dict):
        return lengths, inputs, outputs
    names = ("x", "x_segment_ids", "x_positions")
    marked = case["packer"]["kind"] == "MultiBinPacker"
    named = [dict(zip(names, each if marked else [each], strict=False)) for each in outputs]
    return {"x": lengths}, [{"x": each} for each in inputs], named


def dataset(inputs: list[dict[str, Any]]) -> Any:
    """A source of them; features of vectors are the steps of episodes."""
    if "input_vectors" not in inputs[0]:
        return PenstockDataSource({"train": inputs})
    columns = {name: np.concatenate([each[name] for each in inputs]) for name in inputs[0]}
    return PenstockDataSource({"train": penstock.from_arrays(columns, [len(i["input_tokens"]) for i in inputs])})


def check(ours: dict[str, Any], expected: dict[str, Any]) -> None:
    """The same features, ours with 0 behind them up to the sequence length."""
    assert set(expected) == set(ours)
    for name, value in expected.items():
        wanted = array(value)
        assert ours[name][: len(wanted)].tolist() == wanted.tolist(), name
        assert not ours[name][len(wanted) :].any(), name
        assert ours[name].dtype == wanted.dtype, name


def packer(case: dict[str, Any]) -> PackPreprocessor:
    kind = case["packer"]
    used = NoamPacker() if kind["kind"] == "NoamPacker" else MultiBinPacker(kind["num_partial_examples"])
    return PackPreprocessor(used) if case["pool_size"] is None else PackPreprocessor(used, case["pool_size"])


@pytest.mark.parametrize("case", cases("airio_packing_features", leaving="compared_to_noam_packer#1"))
def test_packs(case: dict[str, Any]) -> None:
    lengths, inputs, outputs = by_name(case)
    packs = Task("case", dataset(inputs), [packer(case)]).get_dataset(lengths, shuffle=False)
    if "max_fan_out" in case["id"] or ("Noam" in case["id"] and "features_different" in case["id"]):
        # Lost there, or cut feature by feature, so that they get out of step.
        tokens = Counter(t for pack in packs for name in lengths for t in pack[name].tolist() if t)
        assert tokens == Counter(t for each in inputs for name in lengths for t in each[name])
        return
    assert len(packs) == len(outputs)
    for ours, expected in zip(packs, outputs, strict=True):
        check(ours, expected)


@pytest.mark.parametrize("case", cases("seqio_trim_and_pack"))
def test_seqio_packs(case: dict[str, Any]) -> None:
    steps = [
        MapFnTransform(remove_features_not_in_sequence_lengths),
        MapFnTransform(trim),
        SingleBinTruePackIterPreprocessor,
        MapFnTransform(pad),
    ]
    task = Task("case", PenstockDataSource({"train": case["input"]}), steps)
    packs = task.get_dataset(case["feature_lengths"], shuffle=False)
    expected = [
        {name: {"__array__": v, "dtype": packs[0][name].dtype} for name, v in e.items()} for e in case["output"]
    ]
    assert len(packs) == len(expected)
    for ours, each in zip(packs, expected, strict=True):
        check(ours, each)


@pytest.mark.parametrize("case", cases("airio_feature_converters", only="AutoregressiveInputs"))
def test_autoregressive_inputs(case: dict[str, Any]) -> None:
    ids = None if "sequence_ids" not in case else array(case["sequence_ids"])[None]
    bos_id = 1 if "bos_id" in case["id"] else 0
    ours = make_autoregressive_inputs(array(case["input"])[None], ids, bos_id)
    assert ours[0].tolist() == array(case["actual"]).tolist()
    assert ours.dtype == array(case["actual"]).dtype


@pytest.mark.parametrize("case", cases("airio_feature_converters", only="Converter", leaving="test_convert_example"))
def test_feature_converters(case: dict[str, Any]) -> None:
    converter = getattr(feature_converters, case["converter"])(**case["kwargs"])
    data = Task("case", PenstockDataSource({"train": case["input"]})).get_dataset(
        case["sequence_lengths_in"], runtime_preprocessors=converter, shuffle=False
    )
    outputs = case.get("output") or [case["actual"]]
    ours = list(data) if "output" in case else [data[len(data) - 1]]
    assert len(ours) == len(outputs)
    for mine, expected in zip(ours, outputs, strict=True):
        check(mine, expected)


def test_prefix_lm_features_of_one_example() -> None:
    (case,) = (param.values[0] for param in cases("airio_feature_converters", only="test_convert_example"))
    features = Columns({"targets": [[7, 8, 5, 1, 3, 9, 1, 0]], "inputs_width": [[4, 4, 4, 4, 4, 4, 4, 0]]})
    convert = feature_converters.get_t5x_prefix_lm_feature_converter_preprocessors(pack=False)[-1].map_fn
    ours = convert(features, runtime_args=AirIOInjectedRuntimeArgs({"targets": 8}, "train"))
    assert {name: value[0].astype(int).tolist() for name, value in ours.items()} == case["expected"]


@pytest.mark.parametrize("case", cases("airio_packing_features"))
@pytest.mark.parametrize(
    "used", [PlannedPacker(overlong="split"), PlannedPacker(method="random_fit", overlong="split")]
)
def test_every_input_is_conserved(case: dict[str, Any], used: PlannedPacker) -> None:
    lengths, inputs, _ = by_name(case)
    packs = Task("case", dataset(inputs), [PackPreprocessor(used)]).get_dataset(lengths)
    for name in (name for name, length in lengths.items() if length > 0):
        parts: list[list[Any]] = []
        for pack in packs:
            ids, positions = pack[f"{name}_segment_ids"], pack[f"{name}_positions"]
            assert (np.diff(ids[ids > 0]) >= 0).all()
            assert not ids[np.count_nonzero(ids) :].any()
            assert not pack[name][ids == 0].any()
            for segment in range(1, ids.max(initial=0) + 1):
                here = ids == segment
                assert positions[here].tolist() == list(range(np.count_nonzero(here)))
                parts += [pack[name][here].tolist()] if here.any() else []
        size = lengths[name]
        cut = [each[name][i : i + size] for each in inputs for i in range(0, len(each[name]), size)]
        assert sorted(parts) == sorted(cut)
