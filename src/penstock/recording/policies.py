"""Policies by name, and versions of their weights in a folder.

A learner publishes versions, collectors load the newest one when an episode begins. An episode is made with one version
from its first step to its last, and says which. So it can be made again: it is a function of its number and its
version.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

from penstock.core.callables import named_function, takes_argument
from penstock.errors import DataError
from penstock.files import atomic_file

RANDOM = "random"
LOOKS = 10
"""How often the newest version may be removed while it is loaded."""
_VERSION = re.compile(r"([0-9]+)$", re.ASCII)

Act = Callable[..., Any]


class WeightsFile(NamedTuple):
    """One version of the weights.

    Attributes:
        version: Its number.
        path: Its file.

    Example:
        >>> WeightsFile(3, Path("weights/00000003.weights")).version
        3
    """

    version: int
    path: Path


class PolicyWeights:
    """Versions of the weights of a policy: files in a folder, whose names end with a number before the suffix.

    Files may also come from another program, such as `step_1200.pt`, if they appear when they are complete: written
    under a hidden name (`.name`), then renamed.

    Args:
        folder: The folder, which need not exist.

    Example:
        >>> import tempfile
        >>> weights = PolicyWeights(tempfile.mkdtemp())
        >>> weights.publish(1, b"..."), weights.publish(12, lambda file: file.write(b"...")).name
        (PosixPath('.../00000001.weights'), '00000012.weights')
        >>> weights.newest().version
        12
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def publish(self, version: int, content: bytes | Callable[[IO[bytes]], object], suffix: str = ".weights") -> Path:
        """Write a version. Collectors see it when it is complete.

        Args:
            version: Number of the version, 0 or more.
            content: The bytes, or a function that writes them to a file, such as
                `lambda file: torch.save(model.state_dict(), file)`.
            suffix: End of the file's name. The default is `".weights"`.

        Returns:
            Path of the file.

        Raises:
            DataError: The number is negative.
        """
        if version < 0:
            raise DataError(f"expected a version of at least 0, got {version}")
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{version:08d}{suffix}"
        with atomic_file(path, durable="file") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
        return path

    def newest(self) -> WeightsFile:
        """Return the version with the largest number. Cost: the folder is listed.

        Raises:
            DataError: There is none.
        """
        newest: WeightsFile | None = None
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        for name in names:
            number = None if name.startswith(".") else _VERSION.search(name.split(".")[0])
            if number is not None and (newest is None or int(number[1]) > newest.version):
                newest = WeightsFile(int(number[1]), self.folder / name)
        if newest is None:
            raise DataError(
                f"expected files such as 00000001.weights in {self.folder}, got none; publish a version first"
            )
        return newest


class LoadedPolicy:
    """The function that acts for an episode, and the version of its weights."""

    def __init__(self, act: Act | None, version: int | None = None) -> None:
        self.act = act
        self.version = version
        self._random = act is not None and takes_argument(act, "rng")

    def act_on(self, observations: Any, rng: Any) -> Any:
        if self.act is None:
            raise DataError("expected a policy, got none")
        return self.act(observations, rng=rng) if self._random else self.act(observations)


class PolicyLoader:
    """Load the newest version of a policy.

    Without weights, `name` is the function that acts. With weights, it is a function from the path of a version to the
    function that acts.
    """

    def __init__(
        self, name: str, weights: str | os.PathLike[str] | None = None, folder: str | os.PathLike[str] | None = None
    ) -> None:
        if name == RANDOM and weights is not None:
            raise DataError("expected a policy as module:function for the weights, got random")
        self._named = None if name == RANDOM else find_policy(name, folder)
        self._weights = None if weights is None else PolicyWeights(weights)
        self._loaded = LoadedPolicy(self._named)

    def newest(self) -> LoadedPolicy:
        """Return the newest version. It is loaded once."""
        if self._weights is None or self._named is None:
            return self._loaded
        for look in range(LOOKS):
            version, path = self._weights.newest()
            if self._loaded.version == version:
                break
            try:
                self._loaded = LoadedPolicy(self._named(path), version)
                break
            except FileNotFoundError:
                if path.exists() or look == LOOKS - 1:  # the function looked for another file
                    raise
        return self._loaded


def find_policy(name: str, folder: str | os.PathLike[str] | None = None) -> Act:
    return named_function(name, "a policy as random or module:function", folder)


def source_of(policy: Act) -> bytes:
    """Return the text of the file that defines a policy, for a fingerprint; nothing for a function without a file."""
    module = sys.modules.get(getattr(policy, "__module__", None) or "")
    path = getattr(module, "__file__", None)
    return Path(path).read_bytes() if isinstance(path, str) and path.endswith(".py") else b""
