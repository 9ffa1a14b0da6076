"""A conversion once it is decided: what each column of the target is made of; and how episodes are written by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock.conversion.adapt import adapt
from penstock.conversion.certificate import Certificate
from penstock.conversion.draft import ASKED, Draft
from penstock.conversion.mark import MARK, ConversionMark
from penstock.conversion.metadata import of_dataset, of_episode
from penstock.conversion.report import Note
from penstock.conversion.scan import Scan
from penstock.conversion.spaces import fitting, known
from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.core.text import counted
from penstock.data.dataset import EpisodeDataset, selection_of
from penstock.errors import DataError, SpecError
from penstock.formats.base.target import Target
from penstock.formats.base.writer import Writer

OnEpisode = Callable[[int, int, int], object]


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

    def episode(self, number: int, episode: Episode) -> Episode:
        """An episode in the form of the target. Raises `DataError` with the number of the source's episode."""
        metadata, notes = of_episode(episode.metadata, self.target)
        self.notes.update(dict.fromkeys(notes))
        columns = self.draft.of(episode.columns, len(episode))
        return Episode(self.spec, columns, number, metadata)


@dataclass
class ConversionProgress:
    """Progress of a conversion. Bytes are the size of the columns."""

    episodes: int
    steps: int
    bytes: int
    current: int = -1


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
    mark = ConversionMark.of(data.source.fingerprint, chosen, how)
    left_out = [
        Note("left out", entry.where, f"not read: {entry.message}")
        for entry in data.source.account.left_out
        if entry.level != "note"
    ]
    notes = dict.fromkeys([*draft.notes, *_note_of_parts(data), *notes, *left_out])
    return ConversionJob(
        data, target, draft, Spec(draft.fields, *spaces), {**metadata, MARK: mark.encode()}, mark, notes
    )


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
    job: ConversionJob, writer: Writer, tally: ConversionProgress, last: int, on_episode: OnEpisode | None = None
) -> None:
    """Write the episodes from number `tally.episodes` to `last - 1`. Errors name the episode of the source."""
    left = range(tally.episodes, last)

    def made() -> Iterator[Episode]:
        for episode in selection_of(job.data).read(left):
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
