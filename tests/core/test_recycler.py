from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from penstock.core.recycler import LEAST, Recycler
from penstock.data.from_arrays import from_arrays

BYTE = np.dtype("u1")


def test_what_is_held_is_never_handed_out_again():
    recycler = Recycler(1 << 26)
    held = [recycler.empty((LEAST,), BYTE) for _ in range(8)]
    for i, array in enumerate(held):
        array.fill(i)
    assert [set(a.tolist()) for a in held] == [{i} for i in range(8)]
    kept = held[3][10:20].reshape(2, 5)
    del held
    for _ in range(20):
        recycler.empty((LEAST,), BYTE).fill(99)
    assert set(kept.ravel().tolist()) == {3}


def test_free_memory_is_used_again_for_other_shapes_and_dtypes():
    recycler = Recycler(1 << 26)
    address = recycler.empty((LEAST * 2,), BYTE).ctypes.data
    again = recycler.empty((LEAST // 4, 2), np.dtype("f4"))
    assert again.ctypes.data == address
    assert (again.shape, again.dtype) == ((LEAST // 4, 2), np.dtype("f4"))


def test_it_holds_no_more_than_its_limit():
    recycler = Recycler(3 * LEAST)
    arrays = [recycler.empty((LEAST,), BYTE) for _ in range(10)]
    addresses = {a.ctypes.data for a in arrays[-3:]}
    del arrays
    assert {recycler.empty((LEAST,), BYTE).ctypes.data for _ in range(5)} <= addresses
    assert recycler.empty((10 * LEAST,), BYTE).nbytes == 10 * LEAST
    assert pickle.loads(pickle.dumps(recycler)).empty((2,), BYTE).shape == (2,)


def test_threads_never_share_a_block():
    recycler = Recycler(1 << 26)

    def work(i: int) -> bool:
        array = recycler.empty((LEAST // 8,), np.dtype("i8"))
        array.fill(i)
        return bool((array == i).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(400)))


def test_kept_batches_keep_their_values_while_the_loader_runs_on():
    data = from_arrays({"x": np.arange(200_000.0)}, lengths=[200_000]).windows(40).shuffle(seed=1)
    kept = [(batch["x"][:3], batch["x"][:3].copy()) for batch in data.loader(512, threads=2)]
    assert all(np.array_equal(view, copy) for view, copy in kept)
