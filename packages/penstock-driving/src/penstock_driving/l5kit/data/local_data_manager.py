"""Paths of the files that configurations name."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path

from penstock.errors import DataError

L5KIT_DATA_FOLDER_ENV_KEY = "L5KIT_DATA_FOLDER"


class DataManager(ABC):
    """Finds files by key."""

    @abstractmethod
    def require(self, key: str) -> str:
        """Return the path of the file that `key` names."""


class LocalDataManager(DataManager):
    """Files below `local_data_folder`, or below the folder that the variable `L5KIT_DATA_FOLDER` names."""

    def __init__(self, local_data_folder: str | os.PathLike[str] | None = None) -> None:
        folder = local_data_folder if local_data_folder is not None else os.environ.get(L5KIT_DATA_FOLDER_ENV_KEY)
        if folder is None:
            raise DataError(f"expected a folder of data, or the variable {L5KIT_DATA_FOLDER_ENV_KEY}, got neither")
        self.root_folder = Path(folder)

    def require(self, key: str) -> str:
        """Return the path of `key` below the folder."""
        path = self.root_folder / key
        if not path.exists():
            raise FileNotFoundError(f"expected {key} in the folder {self.root_folder}, got nothing there")
        return str(path)
