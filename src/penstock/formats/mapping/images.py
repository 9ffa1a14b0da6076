"""Image files as the rows of one array, in the natural order of their names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from penstock.containers.images import decode, decode_into
from penstock.core.arrays import AnyArray
from penstock.core.boundary import parsing
from penstock.core.ragged import Array
from penstock.core.spec import Field
from penstock.errors import FormatError
from penstock.files.remote import read_bytes
from penstock.formats.mapping.tree import FileTree, TreeLeaf

IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
FRAMES = "frames"
NUMBERS = "numbers"


class ImagesTree(FileTree):
    """Images of one size: a row each. Cost of a row: one image is decoded. Needs the extra `images`."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(paths[0])
        self._paths = paths

    def find_leaves(self) -> Mapping[str, TreeLeaf]:
        """Return one array of all images, which have the size of the first, and the numbers in their names."""
        with parsing(self.path):
            first = decode(read_bytes(self.path))
        numbers = TreeLeaf(len(self._paths), Field(np.dtype(np.int64)), is_time=True)
        return {FRAMES: TreeLeaf(len(self._paths), Field(first.dtype, first.shape), block=1), NUMBERS: numbers}

    def read(self, name: str, start: int, stop: int) -> Array:
        """Decode images."""
        if name == NUMBERS:
            return np.array([_number(path) for path in self._paths[start:stop]], np.int64)
        field = self.leaves[name].field
        out: AnyArray = np.empty((stop - start, *field.shape), field.dtype)
        for row, path in zip(out, self._paths[start:stop], strict=True):
            with parsing(path):
                try:
                    decode_into(read_bytes(path), row)
                except FormatError as error:
                    message = f"expected an image like the first, {field.dtype}{list(field.shape)}: {error}"
                    raise FormatError(message, path=path) from error
        return out


def _number(path: Path) -> int:
    """The last number in the name of a file."""
    numbers = re.findall(r"\d+", path.stem)
    if not numbers:
        raise FormatError(f"expected a number in the name of an image, got {path.name}", path=path)
    return int(numbers[-1])
