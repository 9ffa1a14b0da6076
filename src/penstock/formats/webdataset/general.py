"""Any archive of the webdataset library: each sample is a record, an episode of one step."""

from __future__ import annotations

import numpy as np

from penstock.core.spec import Spec
from penstock.errors import FormatError
from penstock.formats.webdataset.content import Content
from penstock.formats.webdataset.decoders import decoder, is_pickle
from penstock.formats.webdataset.places import Places
from penstock.formats.webdataset.reading import Archives, columns_of

NAME = "samples"


def read(archives: Archives) -> Content:
    """The dataset: arrays and numbers are columns of steps, text and bytes and ragged ones belong to episodes.

    Objects that only a trusted pickle makes are no columns; `metadata["left_out"]` names their extension.
    A member `left.json` of dicts gives a column `left.json/<key>` for every key that all samples have.
    Raises `FormatError` for bad members, and for samples that lack one or have another kind of it.
    """
    columns: dict[str, Places] = {}
    left_out: list[str] = []
    samples = archives.samples
    for extension in samples.extensions:
        if decoder(extension, archives.options.how) is None:
            columns[extension] = archives.raw(extension, "episode")
            continue
        placed = archives.placed(extension, "step")
        if placed is not None:
            columns[extension] = placed
            continue
        values = archives.values(extension)
        found, left = columns_of(values, "step", "episode")
        trusted = archives.options.how.trust == "pickle" and is_pickle(extension)
        if "" in left and not trusted:
            odd = next((i for i, value in enumerate(values) if type(value) is not type(values[0])), 0)
            message = "expected numbers, text, or arrays of one shape or one dimension in all samples, got others"
            raise archives.member(odd, extension).error(f"{message}; leave them out with `extensions`")
        columns |= {f"{extension}/{path}" if path else extension: places for path, places in found.items()}
        left_out += [f"{extension}/{path}" if path else extension for path in left]
    if not columns:
        raise FormatError("expected samples with names such as '0001.npy', found none", path=archives.paths[0])
    spec = Spec({path: places.field for path, places in columns.items()})
    metadata = {"left_out": left_out} if left_out else {}
    return Content(NAME, spec, np.arange(len(samples) + 1), columns, samples, metadata)
