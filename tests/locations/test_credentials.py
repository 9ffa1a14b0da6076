"""Credentials in URLs and options are in nothing that penstock prints or writes."""

# pyright: basic

from __future__ import annotations

import io
import json
import logging
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import rich.console
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.errors import DataError
from penstock.formats.webdataset.streaming import ShardStream
from penstock.jobs import WorkPlan
from penstock.locations import fetching
from penstock.locations.location import Location
from penstock.locations.mirror import MIRRORS
from tests.locations.server import Site, serving

PASSWORD, TOKEN, HEADER = "pw7hunter", "tk8hunter", "hd9hunter"
OPTIONS = {"headers": {"X-Key": HEADER}}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    data = penstock.from_arrays({"observations/x": np.arange(40.0), "actions": np.arange(40)}, lengths=[10] * 4)
    penstock.convert(data, tmp_path / "local" / "run")
    penstock.convert(data, tmp_path / "local" / "shards", format="webdataset")
    folder = tmp_path / "local"
    objects = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with serving(objects) as site:
        yield site


def secret(site: Site, name: str) -> str:
    return f"{site.url.replace('//', f'//me:{PASSWORD}@')}/{name}?access_token={TOKEN}"


def texts(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error) + str(error.args)


def test_credentials_are_in_no_text_and_no_file(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors of all kinds, reprs, states, metadata, certificates, pickles, logs, progress, the cache and its names."""
    caplog.set_level(logging.DEBUG, "penstock")
    shown = io.StringIO()
    start = rich.console.Console.__init__  # not the class, whose name modules that are imported now would keep
    monkeypatch.setattr(
        rich.console.Console, "__init__", lambda console, **_: start(console, file=shown, force_terminal=True)
    )
    monkeypatch.setattr(fetching, "SHOWN", 1)
    url, told = secret(site, "run"), []
    with penstock.open(url, storage_options=OPTIONS) as data:
        loader = data.windows(2).shuffle(seed=1).loader(batch_size=4, threads=1)
        batches = iter(loader)
        next(batches)
        state, ticket = loader.state_dict(), data.windows(2)
        told += [repr(data), repr(data.source), str(data.metadata), data.source.fingerprint, str(data.source.location)]
        told += [repr(ticket), json.dumps(state), str(loader.why()), repr(Location.of(url, OPTIONS))]
        told.append(pickle.dumps(data.source).decode("latin-1"))
        report = penstock.convert(data, tmp_path / "out" / "copy")
        told += [repr(report), json.dumps(report.certificate.to_json())]
        uploaded = penstock.convert(data, secret(site, "other"), storage_options=OPTIONS)
        told += [repr(uploaded), str(uploaded.out)]
        merged = penstock.open([url, tmp_path / "local" / "run"], storage_options=OPTIONS)
        told += [repr(merged), str(merged.metadata)]
        actions = {
            "read": lambda: data.steps()[:],
            "open": lambda: penstock.open(url, storage_options=OPTIONS),
            "list": lambda: penstock.open(url.replace("run", "run/*"), storage_options=OPTIONS),
            "write": lambda: penstock.convert(data, secret(site, "third"), storage_options=OPTIONS),
            "stream": lambda: list(ShardStream(secret(site, "shards"), storage_options=OPTIONS, threads=1)()),
        }
        for fault in (401, 403, 404, 410, 429, 500, 418, "cut"):
            site.fault = lambda _, fault=fault: fault
            MIRRORS.cache().evict(0)
            for action in actions.values():
                try:
                    action()
                except (OSError, ValueError, TypeError, RuntimeError) as error:
                    told.append(texts(error))
    assert len(told) > 40
    site.fault = lambda _: None
    broken = [
        f"https://me:{PASSWORD}/x@host/run",
        f"https://me:{PASSWORD}@host:port/run?{TOKEN}",
        f"https://me:{PASSWORD}@[host/run?{TOKEN}",
        f"nothing://me:{PASSWORD}@host/run?{TOKEN}",
        f"https://me:{PASSWORD}@host/{{0..99999999}}?{TOKEN}",
        f"https://me:{PASSWORD}@127.0.0.1:1/run?{TOKEN}",
        f"pipe:curl https://me:{PASSWORD}@host/run?{TOKEN}",
        f"file://me:{PASSWORD}@host/run?{TOKEN}",
        Path(f"s3://me:{PASSWORD}@bucket/run"),
        f"zip://x::{secret(site, 'run/spec.json')}",
    ]
    for given in broken:
        with pytest.raises((OSError, ValueError, TypeError)) as caught:
            penstock.open(given).steps()[:]
        told.append(texts(caught.value).replace("open(given)", ""))
    for command in (["info", url], ["info", "--json", url], ["stats", url], ["check", url], ["show", url]):
        told.append(
            CliRunner().invoke(app, [*command, "--storage", f"headers={json.dumps(OPTIONS['headers'])}"]).output
        )
    told += [shown.getvalue(), *caplog.messages]
    assert "fetching http" in shown.getvalue()
    for folder in (tmp_path / "cache", tmp_path / "out"):
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert files
        told += [str(path) for path in files] + [path.read_bytes().decode("latin-1") for path in files]
    for text in told:
        for hidden in (PASSWORD, TOKEN, HEADER):
            assert hidden not in text, text[:2000]


@pytest.mark.parametrize(
    "arguments",
    [
        {"location": f"https://me:{PASSWORD}@host/run"},
        {"location": f"s3://bucket/run?X-Amz-Signature={PASSWORD}"},
        {"location": "s3://bucket/run", "storage_options": {"headers": {"Authorization": PASSWORD}}},
        {"location": "s3://bucket/run", "storage_options": {"client_kwargs": {"aws_secret_access_key": PASSWORD}}},
        {"location": "s3://bucket/run", "source": {"location": f"https://host/a?token={PASSWORD}"}},
    ],
)
def test_work_plans_are_not_made_of_credentials(arguments: dict[str, object]) -> None:
    with pytest.raises(DataError, match="work plans are files that others may read") as caught:
        WorkPlan.make("stats", arguments)
    assert PASSWORD not in texts(caught.value)


def test_commands_that_write_work_plans_refuse_credentials(site: Site, tmp_path: Path) -> None:
    url = secret(site, "run")
    for command in (["stats", url], ["check", url], ["convert", url, str(tmp_path / "out"), "--format", "columns"]):
        answer = CliRunner().invoke(app, [*command, "--plan", str(tmp_path / "plan.json")])
        assert answer.exit_code == 2, answer.output
        assert "without a user and a query" in " ".join(answer.output.split())
        assert PASSWORD not in answer.output
        assert TOKEN not in answer.output
    assert not (tmp_path / "plan.json").exists()
