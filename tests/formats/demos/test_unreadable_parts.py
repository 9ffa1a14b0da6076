"""Files of a known layout in which one required dataset cannot be read: plain `open` names it, and says what to do."""

# pyright: basic

from __future__ import annotations

import h5py
import numpy as np
import pytest

import penstock
from penstock.errors import FormatError

ROWS = np.arange(8.0)
ENDS = np.arange(8) % 4 == 3
LAYOUTS = {
    "d4rl": {"observations": ROWS, "actions": ROWS, "rewards": ROWS, "terminals": ENDS, "timeouts": ENDS},
    "robomimic": {"data/demo_0/actions": ROWS, "data/demo_0/rewards": ROWS, "data/demo_0/dones": ENDS},
    "aloha": {"action": ROWS, "observations/qpos": ROWS},
    "minari": {
        **{f"episode_0/{name}": ROWS for name in ("actions", "rewards")},
        **{f"episode_0/{name}": ENDS for name in ("terminations", "truncations")},
        "episode_0/observations": np.arange(9.0),
    },
}
OPTIONAL = {"observations/qpos"}


def virtual(file, name, rows):
    layout = h5py.VirtualLayout(rows.shape, rows.dtype)
    layout[...] = h5py.VirtualSource("elsewhere.hdf5", "x", rows.shape)
    file.create_virtual_dataset(name, layout)


def external(file, name, rows):
    file[name] = h5py.ExternalLink("elsewhere.hdf5", "/x")


def nowhere(file, name, rows):
    file[name] = h5py.SoftLink("/nowhere")


def long_double(file, name, rows):
    file[name] = rows.astype(np.longdouble)


def opaque(file, name, rows):
    file.create_dataset(name, rows.shape, h5py.opaque_dtype(np.dtype("M8[us]")))


def elsewhere(file, name, rows):
    file.create_dataset(name, rows.shape, "f4", external=[("raw.bin", 0, h5py.h5f.UNLIMITED)])


SAID = {
    virtual: "a virtual dataset, .* copy its values into this file",
    external: "leads to /x of the file 'elsewhere.hdf5', which is not followed; open that file",
    nowhere: "expected a link to something, got one to /nowhere",
    long_double: "got long double of 80 bits .* store it as float32 or float64",
    opaque: "datatype class opaque is not supported; store it as numbers or text",
    elsewhere: "values kept in other files are not read; copy the dataset into this file",
}


@pytest.mark.parametrize("make", SAID, ids=lambda make: make.__name__)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_required_dataset_that_cannot_be_read_is_named(tmp_path, layout, make):
    for required in LAYOUTS[layout].keys() - OPTIONAL:
        path = tmp_path / f"{required.replace('/', '.')}.hdf5"
        with h5py.File(path, "w") as file:
            for name, rows in LAYOUTS[layout].items():
                make(file, name, rows) if name == required else file.create_dataset(name, data=rows)
        with pytest.raises(FormatError, match=f"(?s){SAID[make]}.* at /{required}"):
            penstock.open(path)


@pytest.mark.parametrize("place", ["data", "data/demo_0"])
def test_demonstrations_in_another_file_are_named(tmp_path, place):
    with h5py.File(tmp_path / "merged.hdf5", "w") as file:
        file[place] = h5py.ExternalLink("first.hdf5", f"/{place}")
    with pytest.raises(
        FormatError, match=f"of the file 'first.hdf5', which is not followed; open that file .*/{place}"
    ):
        penstock.open(tmp_path / "merged.hdf5")


def test_bit_fields_end_episodes_as_booleans_do(tmp_path):
    """PyTables stores booleans as bit fields."""
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as file:
        for name, rows in LAYOUTS["d4rl"].items():
            if rows.dtype == np.bool_:
                space = h5py.h5s.create_simple(rows.shape)
                stored = h5py.h5d.create(file.id, name.encode(), h5py.h5t.STD_B8LE, space)
                stored.write(h5py.h5s.ALL, h5py.h5s.ALL, rows.view("u1"), mtype=h5py.h5t.STD_B8LE)
            else:
                file[name] = rows
    with penstock.open(path) as data:
        assert [len(episode) for episode in data] == [4, 4]
        np.testing.assert_array_equal(data[1].terminations, [False, False, False, True])
