"""The contract of loaders: the calls and the assumptions of training programs of many frameworks."""

from __future__ import annotations

import json
import pickle
from abc import abstractmethod
from itertools import islice
from typing import Any


class LoaderContract:
    """The tests that every loader for training programs must pass, for pytest.

    Derive a class whose name starts with `Test`, and define `loader` and `numbers`. Each epoch has the samples
    `0:samples`, in at least three batches.

    Attributes:
        samples: Number of samples of an epoch.
        shuffled: Whether epochs have different orders. The default is True.

    Example:
        >>> import numpy as np, penstock
        >>> class TestLoader(LoaderContract):
        ...     samples = 20
        ...
        ...     def loader(self, rank=0, world=1):
        ...         data = penstock.from_arrays({"id": np.arange(self.samples)}, lengths=[self.samples])
        ...         return data.steps().shuffle(seed=0).loader(batch_size=6, rank=rank, world=world)
        ...
        ...     def numbers(self, batch):
        ...         return batch["id"].tolist()
        >>> TestLoader().test_iter_changes_nothing()
    """

    samples: int
    shuffled: bool = True

    @abstractmethod
    def loader(self, rank: int = 0, world: int = 1) -> Any:
        """Return a new loader, whose first loop is epoch 0.

        Args:
            rank: Number of the process. The default is 0.
            world: Number of processes. The default is 1.
        """

    @abstractmethod
    def numbers(self, batch: Any) -> list[int]:
        """Return the numbers of the samples of a batch, in their order.

        Args:
            batch: A batch of the loader.
        """

    def test_an_epoch_has_each_sample_once(self) -> None:
        """Lightning fetches exactly `len` batches of an epoch; Accelerate and plain loops go on to its end."""
        loader, epochs = self.loader(), list[list[int]]()
        for _ in range(3):
            batches = [self.numbers(batch) for batch in loader]
            assert len(batches) == len(loader) >= 3
            epochs.append(_joined(batches))
        assert [sorted(epoch) for epoch in epochs] == [list(range(self.samples))] * 3
        assert not self.shuffled or len({tuple(epoch) for epoch in epochs}) == 3

    def test_ranks_share_every_epoch(self) -> None:
        """All ranks have equally many batches, and together they have each sample once."""
        for world in (2, 3):
            ranks = [self.loader(rank, world) for rank in range(world)]
            whole = self._epoch(0)
            assert {len(loader) for loader in ranks} == {len(list(self.loader(0, world)))}
            batches_of = [[self.numbers(batch) for batch in loader] for loader in ranks]
            assert len({len(batches) for batches in batches_of}) == 1
            assert sorted(_joined(_joined(batches_of))) == sorted(whole)
            assert all(loader.state_dict() == ranks[0].state_dict() for loader in ranks)

    def test_iter_changes_nothing(self) -> None:
        """Lightning makes iterators and throws them away, before and after a state is loaded."""
        loader = self.loader()
        before = loader.state_dict()
        for _ in range(3):
            iter(loader)
        assert loader.state_dict() == before
        assert self._all(loader) == self._epoch(0)

    def test_after_the_last_batch_comes_the_next_epoch(self) -> None:
        """Also if the loop did not ask once more, and so has not seen the end."""
        loader = self.loader()
        assert self._all(islice(loader, len(loader))) == self._epoch(0)
        assert self._all(loader) == self._epoch(1)

    def test_a_loop_that_is_left_early_is_not_continued(self) -> None:
        """`limit_train_batches` of Lightning leaves each epoch early; each epoch begins at its own start."""
        loader = self.loader()
        for number in range(2):
            begun = self._all(islice(loader, 2))
            assert begun == self._epoch(number)[: len(begun)]

    def test_epochs_are_set_before_or_after_iter(self) -> None:
        """Lightning calls `sampler.set_epoch` after the first `iter`, and before it in later epochs. Others: before."""
        late = self.loader()
        iterator = iter(late)
        late.sampler.set_epoch(2)
        late.set_epoch(2)
        assert self._all(iterator) == self._epoch(2)
        assert self._all(late) == self._epoch(3)
        late.set_epoch(1)
        assert self._all(late) == self._epoch(1)

    def test_a_state_counts_what_the_consumer_received(self) -> None:
        """No batch is lost or repeated, in any place of an epoch, also if it is saved and loaded again."""
        wanted = self._epoch(0) + self._epoch(1)
        for stop in range(len(self.loader()) + 1):
            first = self.loader()
            seen = self._all(islice(first, stop))
            second = self.loader()
            second.load_state_dict(first.state_dict())
            assert second.state_dict() == first.state_dict()
            assert len(second) == len(first)  # of a whole epoch
            third = self.loader()
            third.load_state_dict(second.state_dict())
            seen += self._all(third)
            seen += self._all(third) if len(seen) == self.samples else []
            assert seen == wanted

    def test_an_iterator_that_was_made_before_continues_from_a_state(self) -> None:
        """Lightning makes an iterator, loads the state, and makes another; torchtitan may keep the first."""
        first = self.loader()
        seen = self._all(islice(first, 1))
        second = self.loader()
        early = iter(second)
        second.load_state_dict(first.state_dict())
        assert seen + self._all(early) == self._epoch(0)

    def test_an_epoch_that_is_set_does_not_throw_a_state_away(self) -> None:
        """Accelerate sets epoch 0 in a new process. A restored epoch keeps its place, and another one is an error."""
        first = self.loader()
        list(first)
        seen = self._all(islice(first, 1))
        state = first.state_dict()
        second = self.loader()
        second.load_state_dict(state)
        second.set_epoch(1)
        assert seen + self._all(second) == self._epoch(1)
        third = self.loader()
        third.load_state_dict(state)
        try:
            third.set_epoch(0)
        except ValueError:
            return
        raise AssertionError("expected an error, for a state of epoch 1 was loaded and epoch 0 set, got none")

    def test_states_are_plain_and_equal_on_all_ranks(self) -> None:
        """`torch.load(weights_only=True)` loads them, and a checkpoint that one rank writes serves all."""
        ranks = [self.loader(rank, 2) for rank in range(2)]
        before = ranks[0].state_dict()
        seen = [self.numbers(next(iter(loader))) for loader in ranks]
        state = ranks[0].state_dict()
        assert state == ranks[1].state_dict()
        assert set(state) == set(before)  # torch.distributed.checkpoint loads into the keys from before the first batch
        assert all(type(state[name]) is type(before[name]) for name in state)
        assert json.loads(json.dumps(state)) == state
        alone = self.loader()
        alone.load_state_dict(state)
        assert _joined(seen) + self._all(alone) == self._epoch(0)

    def test_a_loader_pickles_where_it_stands(self) -> None:
        """Ray and spawned processes get a copy."""
        first = self.loader()
        seen = self._all(islice(first, 1))
        copied = pickle.loads(pickle.dumps(first))  # noqa: S301  # its own
        assert copied.state_dict() == first.state_dict()
        copied.load_state_dict(first.state_dict())
        assert seen + self._all(copied) == self._epoch(0)

    def _all(self, batches: Any) -> list[int]:
        return _joined(self.numbers(batch) for batch in batches)

    def _epoch(self, number: int) -> list[int]:
        loader = self.loader()
        loader.set_epoch(number)
        return self._all(loader)


def _joined(lists: Any) -> list[Any]:
    return [value for each in lists for value in each]
