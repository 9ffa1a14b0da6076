"""A server on this machine that speaks the protocol of the Hugging Face Hub, as far as its client uses it here:
repositories of datasets with commits, trees, files behind redirects to another host, uploads by LFS, and commits."""

# pyright: basic

from __future__ import annotations

import base64
import hashlib
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.locations.server import Reply, Server, Site, reply, serving

TOKEN = "hf_secret"
LARGE = (".tar", ".parquet", ".bin", ".npy", ".mp4", ".hdf5")
"""Ends of names whose files are kept by LFS, as `.gitattributes` of a new repository has it."""


@dataclass
class Repository:
    """The commits of a dataset, each with all its files, and its branches."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    private: bool = False

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        """Make a commit that has these files and no others."""
        text = repr((self.branches.get(branch), sorted((name, blob(raw)) for name, raw in files.items())))
        sha = hashlib.sha1(text.encode()).hexdigest()
        self.commits[sha] = dict(files)
        self.branches[branch] = sha
        return sha

    @property
    def files(self) -> dict[str, bytes]:
        """The files of the branch main."""
        return self.commits[self.branches["main"]]


@dataclass
class Hub:
    """All repositories, the host that has large files, and what was asked.

    `fault` may answer a request instead, and `after` replaces the answer to one that was done. Repositories leave
    files out whose names are `ignored`.
    """

    url: str
    store: Site
    repositories: dict[str, Repository] = field(default_factory=dict)
    fault: Callable[[str, str], Reply | int | None] = lambda method, path: None
    after: Callable[[str, str], Reply | None] = lambda method, path: None
    ignored: set[str] = field(default_factory=set)
    seen: list[tuple[str, str]] = field(default_factory=list)

    def add(self, name: str, files: dict[str, bytes]) -> Repository:
        """Make a repository with one commit."""
        self.repositories[name] = repository = Repository()
        repository.commit({".gitattributes": b"*.bin filter=lfs\n", **files})
        return repository


def blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def oid(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def hub_serving() -> Iterator[Hub]:
    """Serve a hub at `hub.url`, and large files at another host, until the end of the block."""
    with serving({}) as store:
        hub = Hub("", store)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                Answer(self, hub).send()

            do_HEAD = do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        server = Server(("127.0.0.1", 0), Handler)
        hub.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            server.end()
            thread.join()


class Answer:
    """The answer to one request."""

    def __init__(self, handler: BaseHTTPRequestHandler, hub: Hub) -> None:
        self.handler, self.hub = handler, hub
        split = urllib.parse.urlsplit(handler.path)
        self.path = split.path
        self.body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.token = handler.headers.get("Authorization", "").removeprefix("Bearer ")

    def send(self) -> None:
        method = self.handler.command
        self.hub.seen.append((method, self.path))
        given = self.hub.fault(method, self.path)
        answer = given if given is not None else self.answer(method, self.path.strip("/").split("/"))
        answer = self.hub.after(method, self.path) or answer
        if isinstance(answer, int):
            answer = Reply(answer)
        reply(self.handler, answer.status, answer.body, answer.headers)

    def answer(self, method: str, parts: list[str]) -> Reply:
        if parts[:2] in (["api", "validate-yaml"], ["api", "repos"]):
            asked = json.loads(self.body)
            return self.create(asked) if parts[1] == "repos" else json_reply({"errors": [], "warnings": []})
        if parts[-4:] == ["info", "lfs", "objects", "batch"]:
            return self.batch(json.loads(self.body))
        name, action = self.named(parts[1:] if parts[0] == "api" else parts)
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.private and self.token != TOKEN):
            return Reply(401 if not self.token else 404, b"{}", {"X-Error-Code": "RepoNotFound"})
        kind, revision, *rest = [*map(urllib.parse.unquote, action), *[""] * 2]
        revision = revision or "main"
        commit = repository.branches.get(revision, revision)
        if kind == "branch":
            return self.branch(repository, revision)
        if commit not in repository.commits:
            return Reply(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        inside = "/".join(part for part in rest if part)
        files = repository.commits[commit]
        answers: dict[str, Callable[[], Reply]] = {
            "resolve": lambda: self.resolve(files, commit, inside),
            "paths-info": lambda: self.paths(files),
            "tree": lambda: self.tree(files, inside),
            "preupload": lambda: self.preupload(files, json.loads(self.body)),
            "commit": lambda: self.commit(name, repository, revision),
        }
        siblings = [{"rfilename": path} for path in files]
        info = {"_id": "1", "id": name, "sha": commit, "siblings": siblings, "private": repository.private}
        return answers.get(kind, lambda: json_reply(info))()

    def named(self, parts: list[str]) -> tuple[str, list[str]]:
        """The repository, and what is asked of it, of `datasets/OWNER/NAME/...`."""
        return "/".join(parts[1:3]), parts[3:]

    def create(self, asked: dict[str, Any]) -> Reply:
        name = f"{asked.get('organization') or 'me'}/{asked['name']}"
        if self.token != TOKEN:
            return Reply(401, b"{}")
        if name in self.hub.repositories:
            return json_reply(
                {"error": "You already created this dataset repo", "url": f"{self.hub.url}/datasets/{name}"}, 409
            )
        self.hub.add(name, {}).private = asked.get("visibility") == "private" or bool(asked.get("private"))
        return json_reply({"url": f"{self.hub.url}/datasets/{name}", "id": name})

    def tree(self, files: dict[str, bytes], inside: str) -> Reply:
        folder = f"{inside}/" if inside else ""
        names = [name for name in sorted(files) if name.startswith(folder)]
        if inside and not names:
            return Reply(404, b"{}", {"X-Error-Code": "EntryNotFound"})
        deep = "recursive=True" in self.handler.path or "recursive=true" in self.handler.path
        entries, folders = [], set()
        for name in names:
            below = name[len(folder) :].split("/")
            for n in range(1, len(below) if deep else min(len(below), 2)):
                folders.add(folder + "/".join(below[:n]))
            if deep or len(below) == 1:
                entries.append(self.entry(name, files[name]))
        entries += [{"type": "directory", "path": path, "size": 0, "oid": blob(path.encode())} for path in folders]
        return json_reply(sorted(entries, key=lambda entry: entry["path"]))

    def paths(self, files: dict[str, bytes]) -> Reply:
        asked = urllib.parse.parse_qs(self.body.decode())["paths"]
        return json_reply([self.entry(name, files[name]) for name in asked if name in files])

    def entry(self, name: str, content: bytes) -> dict[str, Any]:
        lfs = {"oid": oid(content), "size": len(content), "pointerSize": 130} if name.endswith(LARGE) else None
        plain = {"type": "file", "path": name, "size": len(content), "oid": blob(content)}
        return plain if lfs is None else {**plain, "lfs": lfs}

    def branch(self, repository: Repository, name: str) -> Reply:
        if name in repository.branches:
            return Reply(409, b"{}")
        repository.branches[name] = repository.branches["main"]
        return json_reply({})

    def resolve(self, files: dict[str, bytes], commit: str, name: str) -> Reply:
        if name not in files:
            return Reply(404, b"", {"X-Error-Code": "EntryNotFound"})
        content = files[name]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{blob(content)}"'}
        if name.endswith(LARGE):
            self.hub.store.objects[oid(content)] = content
            linked = {"X-Linked-Size": str(len(content)), "X-Linked-Etag": f'"{oid(content)}"'}
            return Reply(302, b"", {**headers, **linked, "Location": f"{self.hub.store.url}/{oid(content)}?sig=1"})
        asked = self.handler.headers.get("Range", "")
        if not asked:
            return Reply(200, content, headers)
        begin, end = (int(part) for part in asked[6:].split("-"))
        part = content[begin : end + 1]
        return Reply(206, part, {**headers, "Content-Range": f"bytes {begin}-{begin + len(part) - 1}/{len(content)}"})

    def preupload(self, files: dict[str, bytes], asked: dict[str, Any]) -> Reply:
        modes = []
        for file in asked["files"]:
            large = file["path"].endswith(LARGE)
            known = files.get(file["path"])
            there = None if known is None else oid(known) if large else blob(known)
            mode = {"path": file["path"], "uploadMode": "lfs" if large else "regular", "oid": there}
            modes.append({**mode, "shouldIgnore": file["path"] in self.hub.ignored})
        return json_reply({"files": modes})

    def batch(self, asked: dict[str, Any]) -> Reply:
        objects = []
        for each in asked["objects"]:
            upload = {"upload": {"href": f"{self.hub.store.url}/{each['oid']}"}}
            there = each["oid"] in self.hub.store.objects
            objects.append({**each, **({} if there else {"actions": upload})})
        return json_reply({"transfer": "basic", "objects": objects})

    def commit(self, name: str, repository: Repository, branch: str) -> Reply:
        if self.token != TOKEN:
            return Reply(403, b"{}")
        lines = [json.loads(line) for line in self.body.splitlines()]
        parent = lines[0]["value"].get("parentCommit")
        if parent and parent != repository.branches[branch]:
            return json_reply({"error": "A commit has happened since. Please refresh and try again."}, 412)
        files = dict(repository.commits[repository.branches[branch]])
        for line in lines[1:]:
            path, value = line["value"]["path"], line["value"]
            if line["key"] == "file":
                files[path] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[path] = self.hub.store.objects[value["oid"]]
            else:
                del files[path]
        sha = repository.commit(files, branch)
        return json_reply({"success": True, "commitOid": sha, "commitUrl": f"{self.hub.url}/{name}/commit/{sha}"})


def files_of(folder: Path) -> dict[str, bytes]:
    """The contents of all files below a folder, by name."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def json_reply(value: Any, status: int = 200) -> Reply:
    return Reply(status, json.dumps(value).encode(), {"Content-Type": "application/json"})
