"""Namespaces: the directories that datasets are grouped in, and their metadata. Experimental, as in the original."""

from __future__ import annotations

import re
import warnings
from typing import Any

from penstock.errors import DataError, SpecError
from penstock.formats.minari import ids
from penstock_mirrors.minari.storage import root
from penstock_mirrors.minari.storage.datasets_root_dir import get_dataset_path
from penstock_mirrors.minari.storage.remotes import get_cloud_storage

NAMESPACE_REGEX: re.Pattern[str] = ids.NAMESPACE
NAMESPACE_METADATA_FILENAME = ids.NAMESPACE_FILE
namespace_hierarchy = ids.hierarchy


def create_namespace(namespace: str, description: str | None = None, **kwargs: Any) -> None:
    """Create a local namespace and its parents; `description` and `kwargs` are stored as its metadata."""
    validate_namespace(namespace)
    if namespace in list_local_namespaces():
        raise DataError(f"Namespace '{namespace}' already exists. Change it with update_namespace_metadata.")
    described = {} if description is None else {"description": description}
    root.write_namespace(namespace, {**kwargs, **described}, get_dataset_path())


def update_namespace_metadata(namespace: str, description: str | None = None, **kwargs: Any) -> None:
    """Replace the metadata of a local namespace."""
    _check_exists(namespace)
    root.write_namespace(namespace, {**kwargs, "description": description}, get_dataset_path())


def get_namespace_metadata(namespace: str) -> dict[str, Any]:
    _check_exists(namespace)
    return root.namespace_metadata(namespace, get_dataset_path())


def delete_namespace(namespace: str) -> None:
    """Delete an empty local namespace; warn if it does not exist."""
    validate_namespace(namespace)
    if namespace not in list_local_namespaces():
        warnings.warn(f"Namespace '{namespace}' does not exist.", stacklevel=2)
        return
    root.delete_namespace(namespace, get_dataset_path())


def list_local_namespaces() -> list[str]:
    """Return the namespaces below the local root, sorted."""
    return root.namespaces(get_dataset_path())


def list_remote_namespaces() -> list[str]:
    """Return the namespaces of the remote hub (`MINARI_REMOTE`)."""
    return list(get_cloud_storage().list_namespaces())


def download_namespace_metadata(namespace: str, overwrite: bool = False) -> None:
    """Copy the metadata of a remote namespace here; without `overwrite`, warn and keep existing metadata."""
    validate_namespace(namespace)
    if not overwrite and namespace in list_local_namespaces():
        warnings.warn(
            f"Skipping update for namespace '{namespace}', which has local metadata. Set overwrite=True to replace it.",
            stacklevel=2,
        )
        return
    cloud = get_cloud_storage()
    if namespace not in list(cloud.list_namespaces()):
        raise DataError(f"The namespace '{namespace}' doesn't exist in the remote Farama server.")
    cloud.download_namespace_metadata(namespace, get_dataset_path())


def upload_namespace(namespace: str, token: str | None = None) -> None:
    """Upload the metadata of a local namespace, and of its parents, to the remote hub; warn if it exists."""
    _check_exists(namespace)
    cloud = get_cloud_storage(token=token)
    remote = set(cloud.list_namespaces())
    if namespace in remote:
        warnings.warn(f"Upload aborted. Namespace '{namespace}' is already in remote.", stacklevel=2)
        return
    local = set(list_local_namespaces())
    for parent in namespace_hierarchy(namespace):
        if parent in local - remote:
            print(f"Uploading namespace '{parent}'")
            cloud.upload_namespace(parent)


def validate_namespace(namespace: str | None) -> None:
    """Raise `SpecError` (a `TypeError`) for None, and `DataError` for a name that the grammar refuses."""
    if namespace is None:
        raise SpecError("expected a namespace, got None")
    if not NAMESPACE_REGEX.fullmatch(namespace):
        raise DataError(f"Malformed namespace: {namespace!r}; expected letters, digits, '-', '_', parts joined by '/'")


def _check_exists(namespace: str) -> None:
    validate_namespace(namespace)
    if namespace not in list_local_namespaces():
        raise DataError(f"Namespace {namespace} does not exist locally.")
