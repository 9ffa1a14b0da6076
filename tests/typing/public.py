"""What a type checker has to know about the public names. Checked by `make check`, never run."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import penstock
from penstock.conversion.convert import ConversionReport
from penstock.data.dataset import MappedEpisodes
from penstock.formats.webdataset.streaming import ShardStream
from penstock.loading import Batch


def drawn(episode: penstock.Episode, rng: np.random.Generator) -> dict[str, Any]:
    """A function that draws random numbers."""
    return {"noise": rng.standard_normal(len(episode))}


class Model:
    """A function that is made once a process."""

    def __call__(self, episode: penstock.Episode) -> npt.NDArray[Any]:
        """One column."""
        return episode.rewards


def episodes(data: penstock.EpisodeDataset) -> None:
    """Indexing gives an episode, choosing gives a dataset."""
    assert_type(data[0], penstock.Episode)
    assert_type(data.filter("total_steps > 3"), penstock.EpisodeDataset)
    assert_type(data.split(0.5, 0.5), tuple[penstock.EpisodeDataset, ...])
    assert_type(data.spec["rewards"], penstock.Field)
    assert_type(data[0].rewards, npt.NDArray[Any])
    mapped = data.map_episodes(lambda episode: episode.rewards * 2, column="double")
    assert_type(mapped, MappedEpisodes)
    assert_type(data.map_episodes(lambda episode: len(episode) > 3), MappedEpisodes)
    assert_type(data.map_episodes(drawn, seed=1), MappedEpisodes)
    assert_type(data.map_episodes(Model, column="x"), MappedEpisodes)
    assert_type(mapped.write("double", jobs=2), ConversionReport)


def samples(windows: penstock.MapDataset) -> None:
    """An integer gives a record, a slice or a list columns."""
    assert_type(windows[0], dict[str, Any])
    assert_type(windows[:4], penstock.Columns)
    assert_type(windows[[0, 1]], penstock.Columns)
    assert_type(windows.shuffle(seed=0).shard(0, 2), penstock.MapDataset)
    assert_type(penstock.IterDataset.of(windows, 8).rebatch(4), penstock.IterDataset)


def streaming(path: str) -> None:
    """What a format streams is an origin of iterated datasets."""
    assert_type(penstock.IterDataset(ShardStream(path)).rebatch(4), penstock.IterDataset)


def loading(loader: penstock.Loader) -> None:
    """Batches are columns, a state is plain."""
    for batch in loader:
        assert_type(batch, Batch)
    assert_type(loader.state_dict(), dict[str, Any])


def layouts(samples: penstock.MapDataset) -> None:
    """Batches are columns, also with other names, unless an output or a layout makes something else of them."""
    assert_type(samples.loader(8, float32=True, rename={"observations": "obs"}, threads=1), penstock.Loader)
    assert_type(samples.loader(8, layout="sb3"), penstock.Loader[Any])
    assert_type(samples.loader(8, output="torch", layout=("observations", "actions")), penstock.Loader[Any])
    assert_type(samples.repeat().loader(8, output="jax", drop_last=True), penstock.Loader[Any])


def columns(batch: Batch) -> None:
    """A path gives an array; groups and ragged columns are asked for by name."""
    assert_type(batch["rewards"], npt.NDArray[Any])
    mean: float = batch["observations/image"].mean() + batch["observations"]["image"].mean()
    assert_type(batch.group("observations"), penstock.Columns)
    assert_type(batch.group("observations")["image"], npt.NDArray[Any])
    assert_type(batch.ragged("text").strings(), list[str])
    assert_type({path: array.shape for path, array in batch.items()}, dict[str, tuple[Any, ...]])
    assert_type(round(mean), int)


def opening(path: str) -> None:
    """The lazy names are typed."""
    assert_type(penstock.open(path), penstock.EpisodeDataset)
    assert_type(penstock.from_arrays({}, []), penstock.EpisodeDataset)
