"""A conversion that is killed at any of its calls of the system goes on, and ends as if it had not been."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.conversion.conftest import Make, same

# Every call that changes something on the disk is counted, and the process killed at one of them.
CONVERT = """
import os, signal, sys
import penstock
source, out, format, options, at = sys.argv[1:]
left = int(at)
def counted(call):
    def made(*arguments, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **named)
    return made
for name in ("replace", "rename", "pwrite", "pwritev", "write", "unlink", "mkdir", "ftruncate", "fsync"):
    setattr(os, name, counted(getattr(os, name)))
penstock.convert(source, out, format=format, options=eval(options))
print(left)
"""


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("columns", {}),
        ("webdataset", {"shard_episodes": 2, "compression": "gzip"}),
        ("webdataset", {"layout": "seed", "shard_episodes": 2}),
        ("minari", {}),
        ("minari", {"data_format": "arrow"}),
    ],
)
def test_killed_anywhere(make: Make, tmp_path: Path, format: str, options: dict[str, Any]) -> None:
    penstock.convert(make(), tmp_path / "source")
    rng = random.Random(repr((format, options)))

    def run(out: Path, at: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", CONVERT, str(tmp_path / "source"), str(out), format, repr(options), str(at)]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))

    whole = run(tmp_path / "whole", -1)
    assert whole.returncode == 0, whole.stderr
    calls = -1 - int(whole.stdout)
    assert calls > 10
    out, kills = tmp_path / "out", 0
    for _ in range(2):
        done = run(out, rng.randrange(1, calls + 1))
        kills += done.returncode == -signal.SIGKILL
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
    assert kills
    report = penstock.convert(tmp_path / "source", out, format=format, options=options)
    assert report.episodes == 6
    assert list(tmp_path.rglob("*.penstock")) == []
    with penstock.open(tmp_path / "source") as source, penstock.open(out) as killed:
        same(source, killed)
    if format == "webdataset":
        names = sorted(p.name for p in (tmp_path / "whole").glob("shard-*"))
        assert sorted(p.name for p in out.glob("shard-*")) == names
        assert [(out / n).read_bytes() for n in names] == [(tmp_path / "whole" / n).read_bytes() for n in names]


def test_folders_that_killed_conversions_left_are_swept_at_the_next_start(make: Make, tmp_path: Path) -> None:
    penstock.convert(make(), tmp_path / "source", certificate=False)
    out = tmp_path / "out"
    for at in (3, 4):
        command = [sys.executable, "-c", CONVERT, str(tmp_path / "source"), str(out), "columns", "{}", str(at)]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        assert len(list(tmp_path.iterdir())) == 2  # the one before was swept
    penstock.convert(tmp_path / "source", out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.certificate.json", "source"]


def test_files_that_a_killed_conversion_left_are_swept_where_nothing_remains_to_be_written(
    make: Make, tmp_path: Path
) -> None:
    penstock.convert(make(), tmp_path / "source")
    penstock.convert(tmp_path / "source", tmp_path / "out", format="minari")
    left = tmp_path / "out" / "data" / ".metadata.json.0123456789ab.penstock"
    left.write_bytes(b"{}")
    assert penstock.convert(tmp_path / "source", tmp_path / "out", format="minari").status == "complete"
    assert not left.exists()
