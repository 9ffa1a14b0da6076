"""What `LeRobotDataset` does with the Hub: here, errors that name the command of the Hub's own tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from penstock.errors import ArgumentError

Patterns = Sequence[str] | str | None


def refuse_to_push(repo_id: str, root: Path) -> NoReturn:
    """Raise an error that says how to upload a dataset."""
    raise ArgumentError(
        f"penstock does not upload: call finalize, then run `hf upload {repo_id} {root} --repo-type dataset`"
    )


def refuse_to_pull(repo_id: str, root: Path, allowed: Patterns, ignored: Patterns) -> NoReturn:
    """Raise an error that says how to fetch a dataset."""
    words = "".join(f" --include '{each}'" for each in _patterns(allowed))
    words += "".join(f" --exclude '{each}'" for each in _patterns(ignored))
    raise ArgumentError(
        f"penstock downloads nothing: run `hf download {repo_id} --repo-type dataset --local-dir {root}{words}`, or "
        f"read it in place with penstock.open('hf://datasets/{repo_id}')"
    )


def _patterns(given: Patterns) -> Sequence[str]:
    return [given] if isinstance(given, str) else given or ()
