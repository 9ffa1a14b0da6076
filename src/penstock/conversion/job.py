"""A conversion once it is decided: what each column of the target is made of; and how episodes are written by it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from penstock.conversion.adapt import adapt
from penstock.conversion.certificate import Certificate
from penstock.conversion.draft import ASKED, Draft, Note
from penstock.conversion.mark import ConversionMark
from penstock.conversion.scan import Scan
from penstock.core.episode import Episode
from penstock.core.narrowing import is_array, is_list, is_listed, is_mapping, is_path, is_scalar
from penstock.core.space_columns import leaf_columns, widest_space
from penstock.core.spaces import Box, Space
from penstock.core.spec import Field, Spec
from penstock.core.text import counted
from penstock.data.dataset import EpisodeDataset, selection_of
from penstock.data.episode_map import EpisodeMap
from penstock.data.mapped import computed_columns, mappings_of
from penstock.errors import DataError, SpecError
from penstock.formats.base.account import CAUTION, CONVERSION
from penstock.formats.base.source import Source
from penstock.formats.base.writer import Target, Writer

OnEpisode = Callable[[int, int, int], object]
STORED_BY_MINARI = frozenset(
    (
        "total_episodes",
        "total_steps",
        "dataset_size",
        "data_format",
        "jpeg_encoding",
        "minari_version",
        "observation_space",
        "action_space",
    )
)
FIGURES_OF_REWARDS = frozenset(f"rewards_{figure}" for figure in ("sum", "mean", "std", "max", "min"))
DIGITS = 16  # of the digest of a function, in notes
LISTED = 10  # episodes that a note lists
DISCONTINUOUS = "discontinuous_steps"  # entry that the reader of shards makes

COLORS = (None, "RGB", "GRAY")
_COUNTED = frozenset(("id", "total_steps"))  # entries of an episode that the target counts itself


@dataclass(frozen=True, eq=False)
class ConversionJob:
    """Episodes of a dataset, and how to write them."""

    data: EpisodeDataset
    target: Target
    draft: Draft
    spec: Spec
    metadata: Mapping[str, Any]
    mark: ConversionMark
    notes: dict[Note, None] = field(default_factory=dict[Note, None])

    @property
    def mappings(self) -> list[EpisodeMap]:
        """The functions that change the episodes."""
        return mappings_of(self.data.source)

    def numbers(self, left_out: Sequence[int]) -> tuple[int, ...]:
        """Return the numbers in the source of chosen episodes."""
        return tuple(self.data.episodes.index[list(left_out)].tolist())

    def note_left_out(self, left_out: Sequence[int]) -> list[Note]:
        """Return a note about the chosen episodes that the functions left out, if there are any."""
        if not left_out:
            return []
        numbers = self.numbers(left_out)
        names = " and ".join(mapping.name for mapping in self.mappings)
        more = f" and {len(numbers) - LISTED} others" if len(numbers) > LISTED else ""
        some = ", ".join(map(str, numbers[:LISTED]))
        return [Note("left out", "episodes", f"{counted(len(numbers), 'episode')}, by {names}: {some}{more}")]

    def episode(self, number: int, episode: Episode) -> Episode:
        """An episode in the form of the target. Raises `DataError` with the number of the source's episode."""
        metadata, notes = of_episode(self._current(episode.metadata), self.target)
        self.notes.update(dict.fromkeys(notes))
        columns = self.draft.of(episode.columns, len(episode))
        return Episode(self.spec, columns, number, metadata)

    def _current(self, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
        """Metadata of an episode, without figures of rewards that a function replaced."""
        if "rewards" not in computed_columns(self.data.source):
            return metadata
        stale = [name for name in metadata if name in FIGURES_OF_REWARDS]
        what = [Note("left out", f"episode metadata/{name}", "it is of the former rewards") for name in stale]
        self.notes.update(dict.fromkeys(what))
        return {name: value for name, value in metadata.items() if name not in stale}


@dataclass
class ConversionProgress:
    """Progress of a conversion. `bytes` are the size of the columns, and `current` is the episode in the source.

    `position` is the next chosen episode of the source: not `episodes`, the next of the target, where a function left
    some out, whose positions are in `left_out`.
    """

    episodes: int
    steps: int
    bytes: int
    position: int
    current: int = -1
    left_out: list[int] = field(default_factory=list[int])


def conversion_job(
    data: EpisodeDataset,
    target: Target,
    options: Mapping[str, Any],
    drop: Sequence[str],
    rename: Mapping[str, str],
    *,
    fill: bool,
    answers: dict[str, Any] | None = None,
) -> ConversionJob:
    """Decide what each column of the target is made of. Arguments are as of `convert`; `answers` as of `Scan`."""
    draft = Draft(data.spec.fields)
    _note_computed(draft, data.source)
    draft.drop(drop)
    draft.rename(rename)
    index = np.asarray(data.episodes.index, np.int64)
    adapt(draft, target, Scan(data.source, index, draft.origins, answers), fill=fill)
    spaces = [data.spec.observation_space, data.spec.action_space]
    if target.spaces:
        spaces = [fitting(draft, name, space) for name, space in zip(("observations", "actions"), spaces, strict=True)]
    elif target.seed:
        spaces = [known(draft, name, space) for name, space in zip(("observations", "actions"), spaces, strict=True)]
    if options.get("images") == "jpeg":
        draft.note("adapted", "images", "stored as JPEG, which loses detail")
    metadata, notes = of_dataset(_metadata_of_chosen(data), target)
    how = {"target": target.name, "options": options, "drop": list(drop), "rename": rename, "fill": fill}
    first = data.episodes.first_step
    chosen = index if first is None else np.stack([index, first, data.episodes.length], axis=1)
    mark = ConversionMark.of(data.source.fingerprint, chosen, how, known=not mappings_of(data.source))
    left_out = [
        Note("left out", entry.where, f"not read: {entry.message}")
        for entry in data.source.account.left_out
        if entry.level != "note" and entry.reason != CAUTION
    ]
    notes = dict.fromkeys([*draft.notes, *_note_of_parts(data), *notes, *left_out])
    return ConversionJob(
        data, target, draft, Spec(draft.fields, *spaces), {**metadata, CONVERSION: mark.encode()}, mark, notes
    )


def _note_computed(draft: Draft, source: Source) -> None:
    """Say which columns a function computed."""
    for path, mapping in computed_columns(source).items():
        draft.note("computed", path, f"by {mapping.name}, digest {mapping.digest.digest[:DIGITS]}")


def _metadata_of_chosen(data: EpisodeDataset) -> dict[str, Any]:
    """Metadata of the dataset. Stored statistics are of all episodes, so a part of the episodes has none."""
    metadata = dict(data.metadata)
    every = np.array_equal(np.unique(data.episodes.index), np.arange(len(data.source)))
    if not every or data.total_steps != data.source.steps:
        metadata.pop("statistics", None)
    return metadata


def _note_of_parts(data: EpisodeDataset) -> Iterator[Note]:
    """A note if spans are excluded: what is left of an episode becomes episodes, with the values of the source."""
    stored = np.diff(data.source.offsets)[data.episodes.index]
    cut = stored != data.episodes.length
    if cut.any():
        among = len(np.unique(data.episodes.index[cut]))
        parts = counted(int(cut.sum()), "episode")
        message = f"excluded spans cut {counted(among, 'episode')} of the source into {parts}, whose ends have no flag"
        yield Note("adapted", "episodes", message)


def column_bytes(spec: Spec, episodes: int, steps: int) -> int:
    """Return the size of the columns of some episodes, without ragged ones."""
    rows = {"step": steps, "boundary": steps + episodes, "episode": episodes}
    return sum(field.row_bytes * rows[field.align] for field in spec.values())


def write_episodes(
    job: ConversionJob,
    writer: Writer,
    tally: ConversionProgress,
    last: int,
    on_episode: OnEpisode | None = None,
    on_left_out: Callable[[int], object] | None = None,
) -> None:
    """Write the chosen episodes from number `tally.position` to `last - 1`. Errors name the episode of the source.

    `on_left_out` is called with the position of an episode that a function leaves out, before another one is written.
    """
    chosen = range(tally.position, last)

    def made() -> Iterator[Episode]:
        for position, episode in zip(chosen, selection_of(job.data).read_mapped(chosen), strict=True):
            tally.position = position + 1
            if episode is None:
                tally.left_out.append(position)
                if on_left_out is not None:
                    on_left_out(position)
                continue
            tally.current = episode.id
            yield (ready := job.episode(tally.episodes, episode))
            tally.episodes += 1
            tally.steps += len(ready)
            tally.bytes += sum(array.nbytes for array in ready.columns.values())
            if on_episode is not None:
                on_episode(tally.episodes, tally.steps, tally.bytes)

    try:
        writer.write_all(made())
    except (DataError, SpecError) as error:
        if job.mappings and " - at episode " in str(error):  # of the function, which names its episode
            raise
        raise DataError(f"{error} - at or shortly before episode {tally.current} of the source") from error


def check_lossless(job: ConversionJob, require: str, *, certificate: bool) -> None:
    """Refuse what cannot be lossless before anything is written."""
    if require != "lossless" or not certificate:
        raise DataError(
            f"expected require='lossless' with a certificate, got require={require!r} and certificate={certificate}"
        )
    changed = [
        f"{note.what}: {note.message}"
        for note in job.draft.notes
        if note.level != "inferred" and note.message != ASKED and not note.message.startswith("renamed to ")
    ]
    if changed:
        raise DataError(f"expected a lossless conversion, got changes: {'; '.join(changed)}")


def check_kept(proof: Certificate, out: Path, *, lossless: bool = False) -> None:
    """Raise `DataError` if the target does not have the values that were written, or not all with `lossless`."""
    wrong = [f"{column.column}: {column.change}" for column in proof.columns if column.status == "different"]
    if wrong:
        raise DataError(f"expected {out} to have the values that were written, got others: {'; '.join(wrong)}")
    if lossless and not proof.lossless:
        changed = [f"{column.column}: {column.change}" for column in proof.columns if column.status != "equal"]
        raise DataError(f"expected a lossless conversion to {out}, got {'; '.join(changed)}")


def check_options(target: Target, options: Mapping[str, Any]) -> None:
    """Refuse unknown options before anything is written."""
    if target.options is not None and (wrong := sorted(options.keys() - set(target.options))):
        raise DataError(f"expected options of {target.name} among {list(target.options)}, got {wrong}")


def fitting(draft: Draft, root: str, space: Space | None) -> Space:
    """The space if the columns below `root` are its leaves; else boxes as wide as their dtypes, with a note.

    Raises `SpecError` for columns that no box can be made for.
    """
    fields = {path: draft.fields[path] for path in draft.below(root)}
    if space is not None and _fits(space, root, fields):
        return space
    wrong = [path for path, field in fields.items() if field.ragged or field.dtype.kind not in "biuf"]
    if wrong:
        field = fields[wrong[0]]
        raise SpecError(
            f"expected {root} of numbers, or a space for them, got {wrong[0]} of {field.kind} {field.dtype}; leave it "
            f"out or rename it (--drop {wrong[0]}, --rename {wrong[0]}=...)"
        )
    why = "the source has no space" if space is None else "the source's space does not have these columns"
    for path, field in fields.items():
        draft.note("inferred", path, f"a Box as wide as {field.dtype}{list(field.shape)}: {why}")
    return widest_space(root, fields)


def known(draft: Draft, root: str, space: Space | None) -> Space | None:
    """The space if the columns below `root` are its leaves; else none, with a note."""
    if space is not None and not _fits(space, root, {path: draft.fields[path] for path in draft.below(root)}):
        draft.note("left out", f"the space of {root}", "it does not have these columns")
        return None
    return space


def _fits(space: Space, root: str, fields: dict[str, Field]) -> bool:
    leaves = leaf_columns(root, space)
    return leaves.keys() == fields.keys() and all(
        getattr(leaf, "shape", ()) == fields[path].shape
        and (not isinstance(leaf, Box) or leaf.dtype.kind == fields[path].dtype.kind)
        for path, leaf in leaves.items()
    )


def of_dataset(metadata: Mapping[str, Any], target: Target) -> tuple[dict[str, Any], list[Note]]:
    """The entries of the target, and what is to be said about the others."""
    entries, notes = json_of(metadata, "metadata")
    for name in (DISCONTINUOUS, CONVERSION):
        entries.pop(name, None)
    for name in STORED_BY_MINARI & entries.keys():
        del entries[name]
    if target.minari:
        entries.pop("dataset_id", None)  # the id of the source's place
    if target.seed and entries.get("color_space") not in COLORS:
        value = entries.pop("color_space")
        notes.append(Note("left out", "metadata/color_space", f"expected RGB or GRAY, got {value!r}"))
    return entries, notes


def of_episode(metadata: Mapping[str, Any], target: Target) -> tuple[dict[str, Any], list[Note]]:
    """The entries of one episode, and what is to be said about the others."""
    given = {key: value for key, value in metadata.items() if key not in _COUNTED}
    stored = target.entries if target.restored is None else target.restored
    others = [] if stored is None else sorted(given.keys() - stored)
    left_out = [Note("left out", f"episode metadata/{key}", f"{target.name} has no place for it") for key in others]
    if target.restored is not None:
        return {}, left_out
    entries, notes = json_of({key: value for key, value in given.items() if key not in others}, "episode metadata")
    notes += left_out
    if not target.minari:
        return entries, notes
    seed = entries.get("seed")
    if "seed" in entries and (type(seed) is not int or not -(2**63) <= seed < 2**64):
        del entries["seed"]
        if seed is not None:
            notes.append(Note("left out", "episode metadata/seed", "expected an integer of 64 bits"))
    for key in [key for key in entries if "/" in key]:
        notes.append(Note("adapted", f"episode metadata/{key}", "read back as an entry of an object, as / nests names"))
    if target.name == "minari, hdf5":
        for key, value in entries.items():
            if _deep(value):
                entries[key] = json.dumps(value)
                notes.append(
                    Note("adapted", f"episode metadata/{key}", "stored as JSON text, as attributes hold no such list")
                )
    return entries, notes


def json_of(metadata: Mapping[Any, Any], where: str) -> tuple[dict[str, Any], list[Note]]:
    """What JSON can hold, with NumPy as numbers and lists, and a note for everything else."""
    entries: dict[str, Any] = {}
    notes: list[Note] = []
    for key, value in metadata.items():
        if not isinstance(key, str):
            notes.append(Note("adapted", f"{where}/{key}", "the key became text"))
        try:
            entries[str(key)] = _plain(value)
        except (TypeError, RecursionError) as error:
            notes.append(Note("left out", f"{where}/{key}", f"JSON cannot hold it: {error}"))
    return entries, notes


def _plain(value: Any) -> Any:
    if (is_array(value) or is_scalar(value)) and value.dtype.kind in "biufU":
        return value.tolist()
    if is_mapping(value):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if is_listed(value):
        return [_plain(inner) for inner in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(inner) for inner in cast("set[Any]", value)), key=str)
    if is_path(value):
        return os.fspath(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__}")


def _deep(value: Any) -> bool:
    """Whether it is a list that no array of numbers or strings is equal to, anywhere in it."""
    if is_mapping(value):
        return any(_deep(inner) for inner in value.values())
    if not is_list(value):
        return False
    return not value or not (
        all(isinstance(v, str) for v in value)
        or all(type(v) in (int, float) and math.isfinite(v) and abs(v) < 2**63 for v in value)
    )
