"""`Finding`: one result of a check; the table of their names, which are public; and `Repair`, which mends one.

Every repair is computed from the present bytes, so one that was killed is continued by running it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from penstock.errors import ArgumentError, suggestion

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class FindingKind:
    """What a name of findings means."""

    level: Level
    meaning: str
    remedy: str


FINDINGS: dict[str, FindingKind] = {
    # Files and metadata
    "unreadable": FindingKind(
        "error",
        "Bytes are missing, or do not have the layout of the format.",
        "Restore the file from a copy, or take the other episodes.",
    ),
    "truncated": FindingKind(
        "error",
        "A file ends before its content does.",
        "Copy the file again; or `penstock repair`, which keeps the complete episodes.",
    ),
    "missing-footer": FindingKind(
        "error",
        "A Parquet file has no footer, because its writer was killed, or a copy of it was cut.",
        "`penstock repair`, which needs another file of the same columns; or copy the file again.",
    ),
    "checksum": FindingKind(
        "error", "Stored bytes do not have their stored checksum.", "Restore the file from a copy."
    ),
    "missing-part": FindingKind(
        "error", "A file, column or entry that the format requires does not exist.", "Restore it, or convert again."
    ),
    "unused-task": FindingKind("note", "No episode has a task that the dataset lists.", "Record it, or leave it out."),
    "totals": FindingKind(
        "error", "A stored number of episodes or steps is not that of the data.", "`penstock repair`, or convert again."
    ),
    "numbering": FindingKind(
        "error",
        "Episodes or rows are not numbered as the format requires, without gaps.",
        "`penstock repair` where the right numbers are known; or convert the data again.",
    ),
    "identity": FindingKind(
        "error", "The stored id of the dataset is not the id of its place.", "Move the folder, or correct the id."
    ),
    "torn-tail": FindingKind(
        "warning",
        "A file ends in a part that a killed writer left. No complete episode is lost.",
        "Append to the dataset, or `penstock repair`.",
    ),
    "damaged-part": FindingKind(
        "error", "A part of the data was left out, because it could not be read.", "Read the message of the format."
    ),
    "bad-file": FindingKind(
        "error",
        "A file of the dataset was left out: it is empty, cut off, or has another kind of content.",
        "Restore the file from a copy, or move it out of the folder.",
    ),
    "unsupported-dtype": FindingKind(
        "error",
        "An array, column or member was left out, because penstock does not read values of its type.",
        "Store it as numbers, text or encoded images; or read it with the library that wrote it.",
    ),
    "other-length": FindingKind(
        "warning",
        "An array was left out, because its number of rows is not that of the steps or episodes.",
        "Check the array; store it with one row for each step or episode.",
    ),
    "uneven-column": FindingKind(
        "warning",
        "A column was left out, because some episodes lack it, or store it with another type or shape.",
        "Write it in every episode alike; or use the format's option that fills it in, such as `infos='union'`.",
    ),
    "unused-array": FindingKind(
        "warning",
        "An array of the files is not one that the format defines, and no column.",
        "Store it where the format expects columns; or read it with the library that wrote it.",
    ),
    "skipped": FindingKind(
        "note", "An option of `open` left a column out.", "Open without the option, or with another value of it."
    ),
    "guessed": FindingKind(
        "warning",
        "The reader guessed how a part of the data is meant, and the guess changes the steps of episodes.",
        "Say how it is meant with the option that the message names.",
    ),
    "unused-end": FindingKind(
        "warning",
        "A column may mark the ends of episodes and is not used for it.",
        "Look at `penstock info`, which says where episodes end; name the column in the format's option if it is one.",
    ),
    "behind-the-end": FindingKind(
        "error",
        "Bytes follow the end of a file's content, and are not another archive or stream of the same kind.",
        "Find out what they are; no writer and no repair changes them.",
    ),
    "unfinished": FindingKind(
        "error",
        "A conversion, recording or merge that wrote the dataset stopped before its end.",
        "Run the same command again; or open what is there with `allow_unfinished=True`.",
    ),
    "other-file": FindingKind(
        "warning", "A file in the folder is not of the dataset's format, and is left out.", "Move it elsewhere."
    ),
    "document": FindingKind(
        "note", "A text or settings file, or an array of settings such as weights, is not read.", "Nothing."
    ),
    "hidden": FindingKind(
        "note",
        "A hidden file or member, which file managers and copies leave behind (`.DS_Store`, `._name`), is not read.",
        "Delete it, or leave it.",
    ),
    "not-stored": FindingKind(
        "note",
        "Chunks of an array are not stored, or steps of a clock have no row near enough, and are read as zeros or the "
        "fill value.",
        "Copy again if values are missing.",
    ),
    "frame-count": FindingKind(
        "warning",
        "A video has more or fewer frames for an episode than the episode has rows, or episodes share frames.",
        "Check the recording for dropped frames; rows without a frame of their own cannot be read.",
    ),
    "unused-rows": FindingKind(
        "warning", "Rows belong to no episode.", "Check the index of the dataset; `penstock repair` cuts them off."
    ),
    "filler": FindingKind(
        "note",
        "Rows hold no step, and are left out: padding between episodes, slots of a ring that were not written, and "
        "rows at the ends of episodes that the layout fills up.",
        "Nothing.",
    ),
    "caution": FindingKind(
        "warning",
        "The values of a column are not what its name suggests, or cells of a table are empty.",
        "Read the message; compute the values anew where you need others.",
    ),
    "unknown-layout": FindingKind(
        "warning", "Metadata differ from what the format defines.", "Check the version of the writer."
    ),
    "duplicate-key": FindingKind(
        "warning", "Several entries have the same key, so one of them may be overwritten or mixed up.", "Rename them."
    ),
    "no-episodes": FindingKind("warning", "The dataset has no episode.", "Check the path and the format."),
    "partial": FindingKind("note", "The check read only a part of the values.", "`penstock check --deep` reads all."),
    # Values
    "nan": FindingKind(
        "error", "Observations, actions or rewards are NaN.", "Leave these episodes out, or fill the values."
    ),
    "infinite": FindingKind(
        "warning", "Observations, actions or rewards are infinite.", "Leave these episodes out, or clip the values."
    ),
    "outside-space": FindingKind(
        "warning", "Values are outside their observation or action space.", "Correct the space, or clip the values."
    ),
    "narrow-dtype": FindingKind(
        "warning", "A column is stored with fewer bits than its space has, so values lose digits.", "Record it wider."
    ),
    "invalid-value": FindingKind(
        "warning", "Values cannot be true, for example a rotation matrix that does not rotate.", "Leave them out."
    ),
    "next-observation": FindingKind(
        "warning",
        "A stored next observation is not the observation of the next step.",
        "Use `observations`, which have one row more than steps.",
    ),
    "wrong-statistics": FindingKind(
        "warning",
        "Stored statistics are not those of the data.",
        "`penstock repair`; or `penstock stats`, and store them again.",
    ),
    # Episodes
    "no-steps": FindingKind("warning", "An episode has no step.", "Leave it out: `filter('total_steps > 0')`."),
    "one-step": FindingKind(
        "note", "An episode has one step, in a dataset whose episodes are longer.", "`filter('total_steps > 1')`."
    ),
    "early-end": FindingKind(
        "warning", "An episode goes on after a step that ended it.", "Split the episode there, or correct the flag."
    ),
    "no-end": FindingKind(
        "warning",
        "The last step of an episode is neither terminated nor truncated.",
        "Treat it as truncated; bootstrapping from it is right.",
    ),
    "wrong-return": FindingKind(
        "warning", "The stored return of an episode is not the sum of its rewards.", "Compute it again."
    ),
    "duplicate-episode": FindingKind(
        "warning", "An episode has the same values as an earlier one.", "Leave one of them out."
    ),
    "near-duplicate": FindingKind(
        "note", "An episode has nearly the values of another one.", "Look at both; keep them in one split."
    ),
    "leak": FindingKind(
        "warning", "An episode is in several of the datasets that were checked together.", "Take it out of all but one."
    ),
    # Time
    "time-backward": FindingKind(
        "warning", "A timestamp is earlier than the one before it.", "Split the episode there, or sort the steps."
    ),
    "time-repeats": FindingKind("warning", "Two steps have the same timestamp.", "Leave one of the steps out."),
    "time-gap": FindingKind(
        "warning", "Time between two steps is a multiple of the usual time.", "Split the episode at the gap."
    ),
    "time-rate": FindingKind(
        "warning",
        "Steps of an episode have another rate than the dataset states, or than its other episodes have.",
        "Resample the episode, or correct the rate.",
    ),
    "time-drift": FindingKind(
        "warning",
        "A clock runs away by some steps in an episode: from the stated rate, or from another clock of the dataset.",
        "Align columns by their timestamps, not by row; or correct the clock.",
    ),
    "time-precision": FindingKind(
        "warning", "Timestamps have too few digits to tell steps apart exactly.", "Store float64 or integers."
    ),
    # Sensors and actions
    "frozen-sensor": FindingKind(
        "warning",
        "An observation stays the same to the last bit while actions change, for long or until it jumps.",
        "Check the sensor's driver.",
    ),
    "frozen-picture": FindingKind(
        "warning",
        "A camera repeats its picture while actions change; in lossy video, up to the noise of the codec.",
        "Check for dropped frames.",
    ),
    "blank-picture": FindingKind(
        "warning", "Several pictures in a row have one colour, up to the noise of a codec.", "Check the camera."
    ),
    "constant-actions": FindingKind("note", "All actions of an episode are the same.", "Look at the episode."),
    "clipped-actions": FindingKind(
        "note", "Most action values of an episode are at a bound of the action space.", "Check the action scale."
    ),
    "action-jump": FindingKind(
        "warning", "Actions change from one step to the next far more than in other episodes.", "Look at the episode."
    ),
    "idle-start": FindingKind(
        "note", "Neither actions nor observations change in the first steps.", "Cut the start off."
    ),
    "idle-end": FindingKind("note", "Neither actions nor observations change in the last steps.", "Cut the end off."),
}

"""The kinds of findings of this distribution by name."""


@cache
def finding_kinds() -> Mapping[str, FindingKind]:
    """Every kind of finding by name: `FINDINGS`, and the tables that other distributions offer as entry points."""
    from importlib.metadata import entry_points  # heavy: data without findings do without

    points = entry_points(group="penstock.findings")
    return FINDINGS | {name: kind for point in points for name, kind in point.load().items()}


def finding_kind(name: str) -> FindingKind:
    kind = FINDINGS.get(name) or finding_kinds().get(name)
    if kind is None:
        raise ArgumentError(f"expected the name of a finding, got {name!r}{suggestion(name, finding_kinds())}")
    return kind


@dataclass(frozen=True)
class Finding:
    """One result of a check.

    Args:
        name: Kind of the finding, a key of `finding_kinds()`.
        where: Place in the dataset.
        message: The expected and the actual content.
        column: Path of the column. The default is None: it concerns no column, or several.
        episodes: Numbers of episodes, the worst first, at most some hundred. The default is none: unknown or all.
        rows: The first row in each of these episodes, counted from the start of the episode. The default is none.
        repair: What `penstock repair` would change. The default is None: it cannot mend this finding.

    Raises:
        ArgumentError: There is no such kind.

    Example:
        >>> Finding("nan", "episode 3", "expected finite rewards, got NaN").level
        'error'
    """

    name: str
    where: str
    message: str
    column: str | None = None
    episodes: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    repair: str | None = None

    def __post_init__(self) -> None:
        finding_kind(self.name)

    @property
    def level(self) -> Level:
        """How bad it is: `"error"`, `"warning"` or `"note"`."""
        return finding_kind(self.name).level

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain values. Keys are only added in later versions."""
        return {
            "name": self.name,
            "level": self.level,
            "where": self.where,
            "message": self.message,
            "column": self.column,
            "episodes": list(self.episodes),
            "rows": list(self.rows),
            "repair": self.repair,
        }


@dataclass(frozen=True, eq=False)
class Repair:
    """A change of one file."""

    finding: str
    path: Path
    message: str
    content: Callable[[], bytes] | None = None
    keep: int | None = None
    where: str | None = None


def cut_repair(path: Path, keep: int, size: int, *, where: str | None = None, then: bytes = b"") -> Repair:
    """Return the repair of a torn tail: keep some bytes."""
    message = f"cut {size - keep:,} bytes off the end" if size > keep else "close the end"
    return Repair("torn-tail", path, message, lambda: then, keep, where)
