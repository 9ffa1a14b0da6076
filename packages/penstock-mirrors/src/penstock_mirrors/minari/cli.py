"""The command line: list, show, delete, download, upload and combine datasets."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import print as rich_print
from rich.markdown import Markdown
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from penstock.envs.recovery import spec_from_json
from penstock.errors import PenstockError
from penstock.formats.minari import ids
from penstock.formats.minari.metadata import VERSION
from penstock_mirrors.minari.dataset.versions import parse_dataset_id
from penstock_mirrors.minari.namespace import namespace_hierarchy
from penstock_mirrors.minari.storage import get_dataset_path, hosting, local
from penstock_mirrors.minari.storage.remotes.cloud_storage import SINGLE_ROOT
from penstock_mirrors.minari.utils import combine_datasets, get_dataset_spec_dict, get_env_spec_dict

GROUP_ROWS = 10  # a namespace with more datasets than this is one row

app = typer.Typer(help="Datasets for offline reinforcement learning: collect, list, share.")

Entries = Mapping[str, Mapping[str, Any]]
Ids = Annotated[list[str], typer.Argument(help="Ids of datasets.")]


@contextmanager
def _errors_in_red() -> Generator[None]:
    try:
        yield
    except (PenstockError, OSError) as error:
        raise _aborted(str(error)) from error


def _aborted(message: str) -> typer.Abort:
    rich_print(Text(message, style="red"))
    return typer.Abort()


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"Minari version: {VERSION}")
        raise typer.Exit()


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", "-v", callback=_show_version, help="Show the version.")] = False,
) -> None:
    """Datasets for offline reinforcement learning: collect, list, share."""


@app.command("list")
def list_cmd(
    path: Annotated[str, typer.Argument(help="`local`, `remote`, or the path of a hub.")],
    all: Annotated[bool, typer.Option("--all", "-a", help="Show versions that cannot be read, too.")] = False,
    prefix: Annotated[str | None, typer.Option("--prefix", "-p", help="Only ids that start with this.")] = None,
) -> None:
    """List the datasets of this machine or of a hub."""
    with _errors_in_red():
        if path == "local":
            listed = local.list_local_datasets(True, not all, prefix)
            title = f"Local Minari datasets('{get_dataset_path()}')"
        else:
            hub, inner = _hub(ids.remote() if path == "remote" else path)
            wanted = "/".join(part for part in (inner, prefix) if part) or None
            listed = hosting.list_remote_datasets(hub, wanted, True, not all)
            title = f"Minari datasets in {hub}"
    _print_table(listed, title)


def _hub(path: str) -> tuple[str, str]:
    """The hub that a path names, and what follows it."""
    scheme, separator, place = path.partition("://")
    if not separator and not Path(path).is_dir():
        raise _aborted(f"Invalid remote path '{path}': expected scheme://place, or a directory.")
    if scheme not in SINGLE_ROOT:
        return path, ""
    name, _, inner = place.partition("/")
    return f"{scheme}://{name}", inner


@app.command()
def show(dataset_id: Annotated[str, typer.Argument(help="An id, or the URL of a remote dataset.")]) -> None:
    """Describe a dataset and its environment. Nothing is downloaded but metadata, and nothing is executed."""
    with _errors_in_red():
        entries = _found(dataset_id)
    dataset_id = str(entries.get("dataset_id", dataset_id))
    link = entries.get("docs_url")
    rich_print(Markdown(f"# [{dataset_id}]({link})" if link else f"# {dataset_id}"))
    if entries.get("description") is not None:
        rich_print(Markdown(f"## Description\n{entries['description']}"))
    _print_section("Dataset Specs", get_dataset_spec_dict(entries))
    for name, title in (("env_spec", "Environment Specs"), ("eval_env_spec", "Evaluation Environment Specs")):
        with _errors_in_red():
            spec = spec_from_json(entries.get(name), name)
        if spec is not None:
            _print_section(title, get_env_spec_dict(spec))


def _found(dataset_id: str) -> Mapping[str, Any]:
    if "://" not in dataset_id:
        here = local.list_local_datasets(prefix=dataset_id)
        if dataset_id in here:
            return here[dataset_id]
    hub, name = hosting.split_remote(dataset_id)
    there = hosting.list_remote_datasets(hub, name)
    if name not in there:
        raise _aborted(f"The dataset `{dataset_id}` can't be found locally (at `{get_dataset_path()}`) or remotely.")
    return there[name]


@app.command()
def delete(datasets: Ids) -> None:
    """Delete datasets of this machine."""
    here = _checked_here(datasets)
    _print_table({name: here[name] for name in datasets}, "Delete local Minari datasets")
    typer.confirm("Are you sure you want to delete these local datasets?", abort=True)
    with _errors_in_red():
        for name in datasets:
            local.delete_dataset(name)


@app.command()
def download(
    dataset_ids: Ids,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace what is here without asking.")] = False,
) -> None:
    """Download datasets from a hub."""
    with _errors_in_red():
        names = [hosting.split_remote(dataset_id)[1] for dataset_id in dataset_ids]
    here = local.list_local_datasets()
    if taken := {name: here[name] for name in names if name in here and not force}:
        _print_table(taken, "Download remote Minari datasets")
        typer.confirm(f"Are you sure you want to override {', '.join(taken)}?", abort=True)
    with _errors_in_red():
        for dataset_id in dataset_ids:
            hosting.download_dataset(dataset_id, force_download=True)


@app.command()
def upload(
    datasets: Ids, key_path: Annotated[str, typer.Option(help="Token, or path of the key file, of the hub.")]
) -> None:
    """Upload datasets of this machine to a hub."""
    _checked_here(datasets)
    with _errors_in_red():
        there = hosting.list_remote_datasets()
    if taken := {name: there[name] for name in datasets if name in there}:
        _print_table(taken, "Matching datasets in Farama server")
        raise _aborted("The datasets above are on the hub already; ask its owners to replace them.")
    with _errors_in_red():
        for name in datasets:
            hosting.upload_dataset(name, key_path)


@app.command()
def combine(datasets: Ids, dataset_id: Annotated[str, typer.Option(help="The id of the new dataset.")]) -> None:
    """Combine datasets of this machine into a new one."""
    if dataset_id in local.list_local_datasets():
        raise _aborted(f"The dataset {dataset_id} already exists.")
    _checked_here(datasets)
    if len(datasets) < 2:
        raise _aborted(f"Expected two or more datasets to combine, got {datasets}.")
    with _errors_in_red():
        combine_datasets([local.load_dataset(name) for name in datasets], dataset_id)
    rich_print(f"The datasets [green]{', '.join(datasets)}[/green] were combined into [blue]{dataset_id}[/blue]!")


def _checked_here(datasets: Iterable[str]) -> Entries:
    """The local datasets, if all of these are among them."""
    here = local.list_local_datasets()
    missing = [name for name in datasets if name not in here]
    if missing:
        tree = Tree(
            f"The following datasets can't be found locally at `{escape(str(get_dataset_path()))}`", style="red"
        )
        for name in missing:
            tree.add(escape(name), style="magenta")
        rich_print(tree)
        raise typer.Abort()
    return here


def _print_section(title: str, rows: Mapping[str, str]) -> None:
    table = Table(show_header=False, highlight=True)
    table.add_column(style="bold")
    table.add_column(style="not bold")
    for key, value in rows.items():
        table.add_row(key, Markdown(value, inline_code_lexer="python", inline_code_theme="monokai"))
    rich_print(Markdown(f"## {title}"))
    rich_print(table)


def _print_table(datasets: Entries, title: str) -> None:
    """One row a dataset, or one for a namespace of very many, where there is more than one namespace."""
    size = _size(sum(float(entries.get("dataset_size") or 0) for entries in datasets.values()))
    table = Table(title=title, caption=f"Number of datasets: {len(datasets)}, total size: {size}")
    table.add_column("Name", style="cyan", no_wrap=True)
    for name in ("# Episodes", "# Steps", "Size"):
        table.add_column(name, justify="right", style="green", no_wrap=True)
    table.add_column("Author", style="magenta", no_wrap=True)
    groups = _groups(datasets)
    for group, names in groups.items():
        rows = {name: datasets[name] for name in names}
        if len(rows) > GROUP_ROWS and len(groups) > 1:
            label = f"[bold]{escape(group)}/...[/bold]\n [italic]Group with {len(rows)} datasets[/italic]"
            table.add_row(label, *_cells(rows))
        else:
            for name, entries in rows.items():
                table.add_row(_label(name, entries), *_cells({name: entries}))
        table.add_section()
    rich_print(table)


def _groups(datasets: Entries) -> dict[str, list[str]]:
    """Ids by namespace; by the outermost one where that holds very many."""
    counts: dict[str, list[str]] = {}
    for name in datasets:
        counts.setdefault(next(iter(namespace_hierarchy(parse_dataset_id(name)[0])), ""), []).append(name)
    groups: dict[str, list[str]] = {}
    for outer, names in counts.items():
        for name in names:
            namespace = parse_dataset_id(name)[0] or ""
            groups.setdefault(outer if len(names) > GROUP_ROWS and len(counts) > 1 else namespace, []).append(name)
    return groups


def _label(name: str, entries: Mapping[str, Any]) -> str:
    link = str(entries.get("docs_url") or "")
    return f"[link={link}]{escape(name)}[/link]" if link.startswith("https://") and "]" not in link else escape(name)


def _cells(rows: Entries) -> list[str]:
    def total(key: str) -> float:
        return sum(float(entries.get(key) or 0) for entries in rows.values())

    authors = sorted({str(author) for entries in rows.values() for author in _names(entries.get("author"))})
    counts = [_count(total("total_episodes")), _count(total("total_steps")), _size(total("dataset_size"))]
    return [*counts, escape(", ".join(authors) or "Unknown")]


def _names(author: Any) -> list[Any]:
    if author is None:
        return []
    return [author] if isinstance(author, str) else list(author)


def _count(number: float) -> str:
    letters = iter(("", "K", "M", "B"))
    letter = next(letters)
    while number >= 1000 and (following := next(letters, None)) is not None:
        number, letter = number / 1000, following
    return f"{number:.0f}{letter}"


def _size(megabytes: float) -> str:
    for unit, scale in (("TB", 1e6), ("GB", 1e3)):
        if megabytes >= scale:
            return f"{megabytes / scale:.2f} {unit}"
    return f"{megabytes:.1f} MB"


if __name__ == "__main__":
    app()
