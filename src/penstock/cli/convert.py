"""`penstock convert`: convert any dataset to any format that can be written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

import typer
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from penstock.cli.chosen import chosen_dataset
from penstock.cli.jobs import WorkOptions, show_in_parts, works_in_parts
from penstock.cli.options import Episodes, From, In, NewFormat, Opening, Storage, Where, opened, pairs, storage_options
from penstock.cli.show import Fitted, Json, print_json, size
from penstock.conversion.convert import ConversionReport
from penstock.conversion.convert import convert as convert_data
from penstock.core.text import counted
from penstock.data.chosen import ChosenDataset
from penstock.data.dataset import EpisodeDataset, mapped_episodes
from penstock.data.episode_map import EpisodeMap
from penstock.data.located import LocatedData
from penstock.errors import DataError
from penstock.formats.base.source import Source
from penstock.locations.location import output_place

STYLES = {"adapted": "cyan", "inferred": "cyan", "computed": "cyan", "filled": "yellow", "left out": "red"}
SAID = {"converted": "converted", "resumed": "went on from episode {at}", "complete": "was complete before"}


Out = Annotated[str, typer.Argument(metavar="OUT", help="Path or URL of the new dataset; nothing may be there yet.")]
WriterOption = Annotated[
    list[str] | None,
    typer.Option("--option", "-O", metavar="KEY=VALUE", help="An option of the writer, such as layout=seed."),
]
Curation = Annotated[Path | None, typer.Option("--curation", metavar="FILE", help="Leave out what this file excludes.")]
Shuffle = Annotated[bool, typer.Option("--shuffle", help="Write the episodes in a random order.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="The seed of the random order.")]
Drop = Annotated[list[str] | None, typer.Option("--drop", metavar="COLUMN", help="Leave a column out.")]
Rename = Annotated[list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="Give a column another name.")]
FillMissing = Annotated[
    bool, typer.Option("--fill-missing", help="Fill in data that the target needs and the source lacks.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Start again; deletes only files that a conversion wrote.")
]
AllowEmpty = Annotated[bool, typer.Option("--allow-empty", help="Convert even a dataset without episodes.")]
WithCertificate = Annotated[
    bool, typer.Option("--certificate/--no-certificate", help="Read both datasets again and write a certificate.")
]
Require = Annotated[
    Literal["lossless"] | None, typer.Option("--require", help="Fail unless all columns are kept bit for bit.")
]


@works_in_parts
def convert(
    location: In,
    out: Out,
    format: NewFormat = None,
    option: WriterOption = None,
    source: From = None,
    opening: Opening = None,
    episodes: Episodes = None,
    where: Where = None,
    curation: Curation = None,
    shuffle: Shuffle = False,
    seed: Seed = 0,
    drop: Drop = None,
    rename: Rename = None,
    fill_missing: FillMissing = False,
    overwrite: Overwrite = False,
    allow_empty: AllowEmpty = False,
    certificate: WithCertificate = True,
    require: Require = None,
    storage: Storage = None,
    as_json: Json = False,
    *,
    work: WorkOptions,
) -> None:
    """Convert a dataset to another format; lists data that the target cannot store.

    After an interruption, run the same command again: it continues where it stopped.

    Example: penstock convert ./cartpole ./cartpole-minari --format minari
    """
    read_options, write_options = storage_options(storage, location, out)
    dataset = chosen_dataset(
        location, opening, source, read_options, episodes, where, curation=curation, shuffle=shuffle, seed=seed
    )
    rules: dict[str, Any] = {
        "drop": drop or [],
        "rename": {key: str(value) for key, value in pairs(rename, "--rename").items()},
        "fill_missing": fill_missing,
        "certificate": certificate,
        "require": require,
    }
    target = NewDataset(out, format, pairs(option, "--option"), write_options, rules, overwrite, allow_empty)
    write_new(dataset, partial(opened, location, opening, source, read_options), target, work, as_json=as_json)


OpenSource = Callable[[], tuple[LocatedData, Source]]


@dataclass(frozen=True)
class NewDataset:
    """A new dataset that a command writes: place, format and rules."""

    out: str
    format: str | None
    writer: dict[str, Any]
    storage_options: dict[str, Any]
    rules: dict[str, Any]
    overwrite: bool = False
    allow_empty: bool = False

    def arguments(self) -> dict[str, Any]:
        """Return arguments of the operation `convert`."""
        place = output_place(self.out)
        target = {
            "out": str(place.absolute()) if isinstance(place, Path) else self.out,
            "target": {"storage_options": self.storage_options},
            "to": self.format,
            "writer": self.writer,
        }
        return {**target, **self.rules}


def write_new(
    dataset: ChosenDataset,
    open_source: OpenSource,
    target: NewDataset,
    work: WorkOptions,
    *,
    as_json: bool,
    function: dict[str, Any] | None = None,
) -> None:
    """Write chosen episodes, changed by a function if there is one, to a new dataset, and show the report."""
    place = output_place(target.out)
    shown = {"json": as_json, "out": str(place)}
    if work.wanted:
        if target.overwrite or target.allow_empty:
            raise DataError("expected neither --overwrite nor --allow-empty in parts, got one of them")
        mapped = {} if function is None else {"map": function}
        arguments = {**dataset.arguments(), **target.arguments(), **mapped, "show": shown}
        show_in_parts("convert", arguments, work, quiet=as_json)
        return
    _, source = open_source()
    with source, _progress(quiet=as_json) as progress:
        data = dataset.choose(source)
        data = data if function is None else mapped_episodes(data, EpisodeMap.of_entries(function))
        report = convert_data(
            data,
            target.out,
            format=target.format,
            options=target.writer,
            **target.rules,
            overwrite=target.overwrite,
            allow_empty=target.allow_empty,
            on_episode=_advance(progress, data, str(place)),
            on_verified=_advance_verified(progress, data),
            storage_options=target.storage_options,
        )
    present(report, {"show": shown})


def present(report: ConversionReport, arguments: Mapping[str, Any]) -> None:
    """Print the report as the arguments of `penstock convert` say, with the target as it was given."""
    shown = arguments["show"]
    if shown["json"]:
        print_json({**report.to_json(), "out": shown["out"]})
    else:
        Console(soft_wrap=True).print(render(replace(report, out=shown["out"])))


def render(report: ConversionReport) -> RenderableType:
    """Return the report as text for people."""
    said = SAID[report.status].format(at=report.resumed_at)
    counts = f"{counted(report.episodes, 'episode')}, {counted(report.steps, 'step')}, {size(report.bytes)} of columns"
    line = Text.assemble((f"{report.out} ({report.format}) ", "bold"), f"{said}: {counts}")
    if report.revision is not None:
        line = Group(line, Text(f"uploaded as revision {report.revision}"))
    if report.certificate is not None:
        kept = "all values are equal" if report.certificate.lossless else "what changed is in the certificate"
        line = Group(line, Text(f"compared with the source: {kept}; penstock certificate {quote(str(report.out))}"))
    if not report.notes:
        return Group(line, Text("nothing was left out or changed", style="green"))
    table = Table("", "what", "how", box=None, header_style="bold", pad_edge=False)
    for note in report.notes:
        table.add_row(Text(note.level, style=STYLES[note.level]), Text(note.what), Text(note.message))
    return Group(line, Fitted(table))


def _progress(quiet: bool) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[counts]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True)


def _advance(progress: Progress, data: EpisodeDataset, out: str) -> Any:
    """Return the callback after each episode. The bar counts steps, because time grows with steps."""
    task = progress.add_task(out.rstrip("/").rpartition("/")[2], total=data.total_steps, counts="")

    def advance(episodes: int, steps: int, nbytes: int) -> None:
        counts = f"{episodes:,}/{len(data):,} episodes {size(nbytes)}"
        progress.update(task, completed=steps, counts=counts)

    return advance


def _advance_verified(progress: Progress, data: EpisodeDataset) -> Any:
    """Return the callback after each compared episode, which shows a bar from the first call on."""
    tasks: list[Any] = []

    def advance(episodes: int) -> None:
        if not tasks:
            tasks.append(progress.add_task("comparing", total=len(data), counts=""))
        progress.update(tasks[0], completed=episodes, counts=f"{episodes:,}/{len(data):,} episodes")

    return advance
