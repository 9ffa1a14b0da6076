"""Remote hubs: which one a path names."""

from __future__ import annotations

from penstock.formats.minari import ids
from penstock_mirrors.minari.storage.remotes.cloud_storage import CloudStorage

DEFAULT_REMOTE = ids.DEFAULT_REMOTE


def get_cloud_storage(remote_path: str | None = None, token: str | None = None) -> CloudStorage:
    """Return the hub at `remote_path`: `hf://<organisation>`, `gcp://<bucket>`, a fsspec URL, or a local directory.

    `token` is the API token for `hf`, and the path of a service account's key file for `gcp`.
    """
    return CloudStorage(remote_path or ids.remote(), token)
