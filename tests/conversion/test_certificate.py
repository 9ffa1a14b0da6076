"""Certificates: what they say of conversions, that they notice changes, and that interrupted conversions have none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.conversion import digests
from penstock.conversion.certificate import Certificate, path_of, ssim
from penstock.conversion.digests import ColumnDigests, digest
from penstock.conversion.verify import verify
from penstock.core.ragged import Ragged
from penstock.errors import DataError, FormatError
from tests.cli.conftest import Call, call  # noqa: F401 - a fixture
from tests.conversion.conftest import Make, field
from tests.conversion.killed import Conversions


def statuses(certificate: Certificate) -> dict[str, str]:
    return {column.column: column.status for column in certificate.columns}


@pytest.mark.parametrize("format", ["columns", "minari", "webdataset"])
@pytest.mark.parametrize("seed", range(3))
def test_a_lossless_conversion(make: Make, tmp_path: Path, format: str, seed: int) -> None:
    extra = {"notes": (field("u1", kind="text"), Ragged.from_strings([f"s{i}" * (i % 4) for i in range(23)]))}
    data = make(extra if format == "columns" else None, seed=seed)
    report = penstock.convert(data, tmp_path / "out", format=format, require="lossless")
    assert report.certificate is not None
    assert report.certificate.lossless
    assert report.to_json()["lossless"] is True
    stored = Certificate.read(tmp_path / "out")
    assert set(statuses(stored).values()) == {"equal"}
    assert stored.to_json() == report.certificate.to_json()
    with penstock.open(tmp_path / "out") as target:
        assert list(verify(stored, target.source, data.source)) == []


def test_what_changed_is_said_by_column(make: Make, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    slope = (np.arange(40)[:, None, None] * 3 + np.arange(48)[:, None] * 2) + np.zeros(3)
    pixels = (slope + rng.integers(0, 20, (29, 40, 48, 1))).astype(np.uint8)
    data = make(
        {
            "observations": (field("u1", (40, 48, 3), "boundary"), pixels),
            "dones": (field("f4"), np.zeros(23, "f4")),
            "old": (field("f4"), np.arange(23, dtype="f4")),
        },
        without=("terminations",),
    )
    options = {"images": "jpeg", "data_format": "arrow"}
    report = penstock.convert(data, tmp_path / "out", format="minari", options=options, drop=["old"], fill_missing=True)
    assert report.certificate is not None
    found = statuses(report.certificate)
    assert found["observations"] == "lossy"
    assert found["terminations"] == "changed"
    assert found["old"] == "dropped"
    assert found["actions"] == "equal"
    assert found["truncations"] == "filled"
    lossy = next(column for column in report.certificate.columns if column.column == "observations")
    assert lossy.psnr is not None
    assert lossy.ssim is not None
    assert 25 < lossy.psnr < 80
    assert 0.8 < lossy.ssim < 1
    assert not report.certificate.lossless
    assert Certificate.read(tmp_path / "out").to_json() == report.certificate.to_json()


def test_lossless_is_refused_before_anything_is_written(make: Make, tmp_path: Path) -> None:
    data = make({"dones": (field("f4"), np.zeros(23, "f4"))}, without=("terminations",))
    with pytest.raises(DataError, match="expected a lossless conversion"):
        penstock.convert(data, tmp_path / "out", format="minari", require="lossless")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match="with a certificate"):
        penstock.convert(data, tmp_path / "out", require="lossless", certificate=False)
    dropped = penstock.convert(make(), tmp_path / "out", drop=["actions"], require="lossless").certificate
    assert dropped is not None
    assert statuses(dropped)["actions"] == "dropped"


def test_a_writer_that_loses_values_is_caught(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.formats.columns.writer import ColumnsWriter

    inner = ColumnsWriter.write

    def lossy(self: ColumnsWriter, episode: penstock.Episode) -> None:
        columns = dict(episode.columns)
        columns["rewards"] = np.asarray(columns["rewards"]) * (1 + 1e-15 * (len(episode) == 7))
        inner(self, penstock.Episode(episode.spec, columns, episode.id, episode.metadata))

    monkeypatch.setattr(ColumnsWriter, "write", lossy)
    with pytest.raises(DataError, match="rewards: episode 2: values differ"):
        penstock.convert(make(), tmp_path / "out")
    assert not path_of(tmp_path / "out").exists()


def test_changes_are_noticed_later(make: Make, tmp_path: Path) -> None:
    penstock.convert(make(), tmp_path / "out")
    stored = Certificate.read(tmp_path / "out")
    with penstock.open(tmp_path / "out") as target:
        other = make({"extra": (field("f4"), np.zeros(23, "f4"))}, seed=0)
        assert list(verify(stored, target.source, other.source)) == []  # the certificate does not know the extra column
        changed = make(seed=1)
        wrong = list(verify(stored, target.source, changed.source))
        assert [line.split(" has ")[0] for line in wrong] == [
            "source: actions",
            "source: observations",
            "source: rewards",
        ]
        with pytest.raises(DataError, match="of 6 episodes, got one of 2"):
            list(verify(stored, target.source, make(lengths=(1, 2)).source))


@pytest.mark.parametrize(
    ("ranges", "message"),
    [(100, "1 episode, the first is 5"), (4, "1 range of 2 episodes, the first is episodes 4 to 5")],
)
def test_a_certificate_of_many_episodes_names_ranges(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranges: int, message: str
) -> None:
    monkeypatch.setattr(digests, "RANGES", ranges)
    data = make(None)
    assert len(data) > 5
    penstock.convert(data, tmp_path / "out")
    monkeypatch.setattr(digests, "RANGES", 4096)  # what was written says how it was made
    stored = Certificate.read(tmp_path / "out")
    with penstock.open(tmp_path / "out") as target:
        assert list(verify(stored, target.source, data.source)) == []
        for path, field in target.spec.items():
            if path == "rewards":
                file = tmp_path / "out/segments/0/rewards.values"
                raw = bytearray(file.read_bytes())
                raw[int(target.source.offsets[5]) * field.row_bytes] ^= 1
                file.write_bytes(raw)
    with penstock.open(tmp_path / "out") as target:
        assert list(verify(stored, target.source)) == [f"target: rewards has other values in {message}"]
    forged = {"digest": "00", "episodes": "", "episodes_of_a_range": 0}
    with pytest.raises(ValueError, match="at least one episode"):
        ColumnDigests.from_json(forged)


def test_a_killed_conversion_has_no_certificate(make: Make, conversions: Conversions, tmp_path: Path) -> None:
    penstock.convert(make(), tmp_path / "source")
    out = tmp_path / "out"
    path_of(out).write_text("{}")  # of an earlier dataset of that name
    assert conversions.convert(tmp_path / "source", out, "columns", {}, at=20) == 0
    assert not path_of(out).exists()
    report = penstock.convert(tmp_path / "source", out)
    assert report.certificate is not None
    assert report.certificate.lossless
    again = penstock.convert(tmp_path / "source", out)
    assert again.status == "complete"
    assert Certificate.read(out).lossless


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"certificate": 1}', '{"certificate": 1, "columns": [{}]}'])
def test_other_files_are_no_certificates(tmp_path: Path, text: str) -> None:
    path_of(tmp_path / "out").write_text(text)
    with pytest.raises(FormatError, match="expected a certificate"):
        Certificate.read(tmp_path / "out")
    with pytest.raises(FileNotFoundError, match="did not finish"):
        Certificate.read(tmp_path / "other")


def test_digests_are_of_values_and_not_of_layout() -> None:
    rows = np.arange(24, dtype="f4").reshape(4, 6)
    assert digest(rows) == digest(np.asfortranarray(rows)) == digest(rows.astype(">f4"))
    assert len({digest(rows), digest(rows.reshape(6, 4)), digest(rows.astype("f8")), digest(rows + 1)}) == 4
    one, other = Ragged.from_strings(["ab", "c"]), Ragged.from_strings(["a", "bc"])
    assert digest(one) != digest(other)
    big = np.zeros((1 << 17, 1), "u1")
    assert digest(big) == digest(big[::1].copy())


def test_similarity_falls_with_noise() -> None:
    rng = np.random.default_rng(0)
    frames = np.repeat(np.repeat(rng.integers(0, 255, (2, 4, 4, 3), np.uint8), 8, 1), 8, 2)
    noisy = [np.clip(frames + rng.normal(0, sigma, frames.shape), 0, 255).astype(np.uint8) for sigma in (1, 10, 60)]
    values = [ssim(frames, each) for each in noisy]
    assert 1 > values[0] > values[1] > values[2] > 0
    assert ssim(frames[:, :4, :4], frames[:, :4, :4]) == 1  # smaller than a square


def test_the_command_takes_the_curation_of_the_source(call: Call, make: Make, tmp_path: Path) -> None:  # noqa: F811
    penstock.convert(make(), tmp_path / "source", certificate=False)
    marks = tmp_path / "marks.json"
    with penstock.curation.Curation.edit(marks, penstock.open(tmp_path / "source").source) as curation:
        longest = int(np.argmax(make().episodes.length))
        curation[longest] = penstock.curation.EpisodeMarks(excluded_spans=[(1, 1)])
    answer = call("convert", tmp_path / "source", tmp_path / "out", "--curation", marks, "--json")
    assert any("excluded spans cut 1 episode" in note["message"] for note in answer.json["notes"])
    again = (tmp_path / "out", tmp_path / "source", "--verify")
    assert call("certificate", *again, "--curation", marks).code == 0
    assert call("certificate", *again).code == 2  # the source has other episodes
    assert call("certificate", tmp_path / "out", "--curation", marks).code == 2


def test_the_command(call: Call, make: Make, tmp_path: Path) -> None:  # noqa: F811
    penstock.convert(make(), tmp_path / "source", certificate=False)
    answer = call(
        "convert", tmp_path / "source", tmp_path / "out", "--format", "minari", "--require", "lossless", "--json"
    )
    assert answer.json["lossless"] is True
    shown = call("certificate", tmp_path / "out")
    assert shown.code == 0
    assert "observations" in shown.out
    assert shown.out.splitlines()[1].split() == ["column", "of", "kept", "how"]
    assert "6 episodes, 23 steps" in shown.out
    verified = call("certificate", tmp_path / "out", tmp_path / "source", "--verify")
    assert verified.code == 0
    assert "verified" in verified.out
    data = json.loads(path_of(tmp_path / "out").read_text())
    data["columns"][0]["target"] = data["columns"][1]["target"]
    path_of(tmp_path / "out").write_text(json.dumps(data))
    wrong = call("certificate", tmp_path / "out", "--verify", "--json")
    assert wrong.code == 1
    assert wrong.json["verified"] is False
    assert call("certificate", tmp_path / "out", tmp_path / "source").code == 2
    assert call("convert", tmp_path / "source", tmp_path / "two", "--no-certificate").code == 0
    assert call("certificate", tmp_path / "two").code == 2
