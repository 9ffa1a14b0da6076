"""The datasets of a remote hub: list, download, upload."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

from penstock.errors import DataError, PenstockError
from penstock.flow import map_on_threads
from penstock.formats.minari import ids
from penstock.formats.minari.metadata import VERSION
from penstock_mirrors.minari.dataset.minari_storage import MinariStorage
from penstock_mirrors.minari.dataset.versions import gen_dataset_id, is_supported, latest, parse_dataset_id
from penstock_mirrors.minari.namespace import (
    list_local_namespaces,
    list_remote_namespaces,
    namespace_hierarchy,
    upload_namespace,
)
from penstock_mirrors.minari.storage.datasets_root_dir import get_dataset_path
from penstock_mirrors.minari.storage.remotes import get_cloud_storage
from penstock_mirrors.minari.storage.remotes.cloud_storage import SINGLE_ROOT, CloudStorage

_HUB = "the remote Farama server"


def list_remote_datasets(
    remote_path: str | None = None,
    prefix: str | None = None,
    latest_version: bool = False,
    compatible_minari_version: bool = False,
) -> dict[str, dict[str, Any]]:
    """Return ids of a hub's datasets that start with `prefix`, and their raw metadata, fetched by ten threads.

    Datasets whose metadata cannot be read are left out, with a warning. See `list_local_datasets` for the other
    arguments, and `get_cloud_storage` for `remote_path`.
    """
    cloud = get_cloud_storage(remote_path)
    dataset_ids = list(cloud.list_datasets(prefix))
    fetched = map_on_threads(partial(_fetched, cloud), dataset_ids, 10, name="penstock-list")
    remote: dict[str, dict[str, Any]] = {}
    for dataset_id, entries in zip(dataset_ids, fetched, strict=True):
        if isinstance(entries, Exception):
            warnings.warn(f"Skipping {dataset_id}, whose metadata cannot be read: {entries}", stacklevel=2)
        elif not compatible_minari_version or is_supported(entries.get("minari_version")):
            remote[dataset_id] = entries
    return {key: remote[key] for key in latest(list(remote))} if latest_version else remote


def _fetched(cloud: CloudStorage, dataset_id: str) -> dict[str, Any] | Exception:
    try:
        return cloud.get_dataset_metadata(dataset_id)
    except (OSError, PenstockError) as error:
        return error


def split_remote(url: str) -> tuple[str | None, str]:
    """Hub and id of a dataset's URL; no hub for what is an id already.

    On `hf` and `gcp` the hub is the first part. Elsewhere the dataset itself says its id.
    """
    scheme, separator, place = url.partition("://")
    if not separator:
        return None, url
    if scheme in SINGLE_ROOT:
        hub, _, dataset_id = place.partition("/")
        return f"{scheme}://{hub}", dataset_id
    try:
        dataset_id = str(CloudStorage(url.rstrip("/")).get_dataset_metadata("").get("dataset_id"))
    except FileNotFoundError as error:
        raise DataError(f"expected the URL of a dataset, got {url}: nothing at {error}") from error
    if not url.rstrip("/").endswith(f"/{dataset_id}"):
        raise DataError(f"expected the dataset {dataset_id} at a URL that ends with its id, got {url}")
    return url.rstrip("/").removesuffix(f"/{dataset_id}"), dataset_id


def download_dataset(dataset_id: str, force_download: bool = False) -> None:
    """Copy a dataset from the hub here, with its namespaces' metadata and the datasets that it combines.

    `dataset_id` may be a URL, such as `hf://farama-minari/D4RL/door/human-v2`. An existing dataset is kept,
    with a warning, unless `force_download`, which also downloads datasets that a release cannot read.
    """
    hub, dataset_id = split_remote(dataset_id)
    _download(hub, dataset_id, force_download, set())


def _download(hub: str | None, dataset_id: str, force: bool, seen: set[str]) -> None:
    seen.add(dataset_id)
    readable = _check_available(hub, dataset_id, force)
    path = get_dataset_path(dataset_id)
    if path.exists() and not force:
        warnings.warn(
            f"Skipping Download. Dataset {dataset_id} found locally at {path}, Use force_download=True to download "
            "the dataset again.\n",
            stacklevel=3,
        )
        return
    cloud = get_cloud_storage(hub)
    _download_namespaces(cloud, dataset_id)
    print(f"\nDownloading {dataset_id} from Farama servers...")
    cloud.download_dataset(dataset_id, get_dataset_path())
    print(f"\nDataset {dataset_id} downloaded to {path}")
    if readable:
        _download_parts(hub, dataset_id, seen)


def _check_available(hub: str | None, dataset_id: str, force: bool) -> bool:
    """Whether the dataset can be read once it is here; errors and warnings otherwise, as the original words them."""
    namespace, name, version = parse_dataset_id(dataset_id)
    nameless = gen_dataset_id(namespace, name)
    there = list_remote_datasets(remote_path=hub, prefix=nameless)
    versions = {parse_dataset_id(key)[2]: entries for key, entries in there.items() if key.startswith(f"{nameless}-v")}
    if not versions:
        raise DataError(f"Couldn't find any version for dataset {nameless} in {_HUB}.")
    readable = [v for v, entries in versions.items() if is_supported(entries.get("minari_version"))]
    if not readable:
        _refuse(
            f"Couldn't find any compatible version of dataset {nameless} with the local installed version, {VERSION}.",
            force,
        )
    newest = gen_dataset_id(namespace, name, max(readable)) if readable else None
    if version not in versions:
        hint = f" The latest version that can be read is {newest}." if newest else " No other version can be read."
        raise DataError(f"The dataset version, {dataset_id}, doesn't exist in {_HUB}.{hint}")
    if version in readable:
        if version < max(readable):
            warnings.warn(
                "We recommend you install a higher dataset version available and compatible with your local installed "
                f"version: {newest}.",
                stacklevel=4,
            )
    elif newest:
        forced = f"{dataset_id} will be FORCE download but you" if force else "You"
        _refuse(
            f"The version you are trying to download for dataset, {dataset_id}, is not compatible with your local "
            f"installed version of Minari, {VERSION}. {forced} can download the latest compatible version of this "
            f"dataset: {newest}.",
            force,
        )
    return version in readable


def _refuse(message: str, force: bool) -> None:
    if not force:
        raise DataError(message)
    warnings.warn(message, stacklevel=5)


def _download_namespaces(cloud: CloudStorage, dataset_id: str) -> None:
    """Download metadata of the namespaces that do not exist locally."""
    namespace = parse_dataset_id(dataset_id)[0]
    here = set(list_local_namespaces())
    if namespace is None or namespace in here:
        return
    there = set(cloud.list_namespaces())
    for parent in namespace_hierarchy(namespace):
        if parent in there and parent not in here:
            cloud.download_namespace_metadata(parent, get_dataset_path())
    ids.ensure_namespace(namespace, get_dataset_path())


def _download_parts(hub: str | None, dataset_id: str, seen: set[str]) -> None:
    entries = MinariStorage.read_raw_metadata(get_dataset_path(dataset_id) / ids.DATA)
    known: list[Any] = entries.get("combined_datasets") or []
    parts = [str(part) for part in known if part not in seen]
    if parts:
        print(f"\nDataset {dataset_id} is a combination of {', '.join(parts)}; downloading these too ...")
    for part in parts:
        _download(hub, part, False, seen)


def upload_dataset(dataset_id: str, token: str | None = None) -> None:
    """Copy a local dataset to the hub (`MINARI_REMOTE`), with its namespaces and the datasets that it combines.

    Warns and does nothing if the hub has the dataset. `token` is explained at `get_cloud_storage`.
    """
    namespace = parse_dataset_id(dataset_id)[0]
    cloud = get_cloud_storage(token=token)
    there = set(cloud.list_datasets(dataset_id))
    if dataset_id in there:
        warnings.warn(f"Upload aborted. {dataset_id} is already in remote.", stacklevel=2)
        return
    if namespace is not None and namespace not in list_remote_namespaces():
        upload_namespace(namespace, token)
    waiting, seen = [dataset_id], {dataset_id}
    while waiting:
        part = waiting.pop()
        entries = MinariStorage.read_raw_metadata(get_dataset_path(part) / ids.DATA)
        print(f"Uploading dataset {part}")
        cloud.upload_dataset(part)
        known: list[Any] = entries.get("combined_datasets") or []
        unseen = [str(inner) for inner in known if inner not in seen]
        seen.update(unseen)
        waiting.extend(inner for inner in unseen if inner not in set(cloud.list_datasets(inner)))
