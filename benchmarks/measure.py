"""Run the benchmarks, and compare what they measure with the figures that the README and the docs quote.

    python benchmarks/measure.py [--only NAME ...] [--peers] [--keep] [--short] [--list]

Every figure on a page has a command in COMMANDS that reproduces it. The table has, for each quotation: the page, the
figure, the quoted value, the value measured now, and their ratio. `OFF` marks a value that differs by more than a
third; the exit code is 1 then, or if a command fails. Benchmarks compared with other libraries need `--peers` and the
environments that `make figures` installs in `.build`. `--keep` writes `figures.json` and the quotations in the pages
after each command.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import figures
from figures import Figure, Quotation

REFERENCE = ".build/reference/bin/python"
PEERS = ".build/peers/bin/python"
LEROBOT = ".build/lerobot/bin/python"
TFDS = ".build/tfds/bin/python"
ZARR3 = ".build/zarr3/bin/python"
AV2 = ".build/av2/bin/python"
GAMES = "benchmarks/data/lc0/games"
FEW_GAMES = "tests/golden/lc0/tar"
DRIVES = "tests/golden/l5kit"


@dataclass(frozen=True)
class Command:
    """A benchmark with its arguments. It needs other libraries where it names their interpreter.

    `short` are the arguments of a form of some seconds, whose figures mean nothing: the tests run it. Without one, the
    benchmark needs another library, Ray or half a minute.
    """

    name: str
    words: str
    short: str | None = None

    @property
    def text(self) -> str:
        """The command as a page shows it."""
        return f"python benchmarks/{self.words}"

    @property
    def needs_peers(self) -> bool:
        return ".build/" in self.words


COMMANDS = (
    Command("bench", "bench.py", "--rounds 1 --seconds 0.02 --only episodes packs"),
    Command("import_time", "import_time.py", "--runs 1 --only import"),
    Command("first_use", "first_use.py", "--only converted"),
    Command("memory", "memory.py", "--megabytes 4 --limit 1 --formats columns"),
    Command("gather", "gather.py", "--small"),
    Command("transitions", "transitions.py", "--episodes 2 --rounds 1"),
    Command("plan", "plan.py", "2000"),
    Command("scale", "scale.py --sequences 1e10", "--samples 1e6 --sequences 1e4 --ranks 1"),
    Command("many_files", "scale.py --only files --files 1e5"),
    Command("remote", "remote.py", "--megabytes 8 --latency 0 --bandwidths 1000 --rounds 1"),
    Command("simulation", "simulation.py"),
    Command("simulated_hosts", "simulated_hosts.py --picture docs/pictures/simulation.svg"),
    Command("check", "check.py", "--episodes 20 --formats columns"),
    Command("goals", "goals.py", "20000"),
    Command("derived", "derived.py", "--steps 20000"),
    Command("column_statistics", "column_statistics.py", "--megabytes 4"),
    Command("cheetah", f"minari.py --kinds cheetah --seconds 3 --reference-python {REFERENCE}"),
    Command("small", f"minari.py --kinds small --seconds 3 --reference-python {REFERENCE}"),
    Command("image", f"minari.py --kinds image --seconds 2 --reference-python {REFERENCE}"),
    Command("collect", f"collect.py --steps 20000 --rounds 5 --reference-python {REFERENCE}", "--steps 200 --rounds 1"),
    Command("cross_read_minari", f"cross_read_minari.py --reference-python {REFERENCE}"),
    Command("kill_recording", "kill_recording.py --kills 100", "--kills 2"),
    Command("packing", f"packing.py --n 1000000 --rows 10000 --peer {PEERS}", "--n 200000 --rows 1000"),
    Command("billion", "packing.py --billion"),
    Command("mixing", f"mixing.py --peer {PEERS}", "--repeats 1 --sources 3 100"),
    Command(
        "stream_packing",
        f"stream_packing.py --rounds 1 --sequences 100000 --peer {PEERS}",
        "--rounds 1 --sequences 2000",
    ),
    Command("tiny_batches", f"tiny_batches.py --small --peer {PEERS}", "--megabytes 4 --batches 20"),
    Command("loader", "loader.py", "--seconds 0.02 --records 100000"),
    Command("replay", f"replay.py --peer {PEERS}", "--entries 2000 --frames 400 --seconds 0.01 --only penstock"),
    Command("video", f"video.py --peer {LEROBOT}"),
    Command("video_cpu", f"video.py --cpu --batches 4 --peer {LEROBOT}"),
    Command("many_videos", "many_videos.py", "--files 20 --few 5"),
    Command("viewer", "viewer.py"),
    Command("jobs", "jobs.py --megabytes 256 --operations stats check convert"),
    Command("collect_workers", "collect_workers.py --episodes 8000 --rounds 2 --ray"),
    Command("ray_kill", "ray_kill.py --minutes 10"),
    Command("cross_read_lerobot", f"cross_read_lerobot.py --peer {LEROBOT}"),
    Command("rlds", f"rlds.py --peer {TFDS}", "--repeats 2 --rounds 1"),
    Command("pictures", "pictures.py", "--rounds 1 --epochs 1 --sizes 640x480 --kinds minari-jpeg"),
    Command("zarr_windows", f"zarr_windows.py --peer {PEERS} --peer {ZARR3}", "--rounds 1 --steps 1000"),
    Command("scenarios", f"scenarios.py --peer {AV2}"),
    Command("logs", "logs.py", "--rounds 1 --seconds 10 --windows 2"),
    Command("shards", f"shards.py --small --peer {PEERS}", "--frames 800"),
    Command("cross_read_shards", f"cross_read_shards.py --peer {PEERS}"),
    Command("kill_reshape", "kill_reshape_replay.py --batches 160 --kills 8"),
    Command("rivals", f"kill_reshape_replay.py --rivals {PEERS}"),
    Command("chess_frames", f"chess_frames.py {GAMES}", f"{FEW_GAMES} --batch 32 --frames 64"),
    Command("lc0", f"lc0.py {GAMES} --seconds 3 --runs 1", f"{FEW_GAMES} --seconds 0.1 --runs 1 --only long"),
    Command("lc0_kill", f"lc0_kill.py {GAMES}", f"{FEW_GAMES} --kills 1"),
    Command("lc0_soak", f"lc0_soak.py {GAMES} --minutes 1", f"{FEW_GAMES} --minutes 0.02"),
    Command(
        "driving",
        f"driving.py {DRIVES}/single.zarr --map {DRIVES}/semantic_map.pb --meta {DRIVES}/meta.json",
        f"{DRIVES}/single.zarr --scenes 2 --batch 4 --batches 2 --rounds 1",
    ),
    Command("rasters", f"rasters.py {DRIVES}", f"{DRIVES} --rounds 1 --batch 2"),
    Command("rasters_device", f"rasters_device.py {DRIVES}", f"{DRIVES} --batch 2 --batches 1 --rounds 1 --threads 1"),
    Command("cross_read_l5kit", f"cross_read_l5kit.py --peer {PEERS}"),
)


def chosen(only: Iterable[str], peers: bool) -> list[Command]:
    """Return the commands to run: those named, or all, without other libraries' if they are not asked for."""
    names = set(only)
    if unknown := names - {command.name for command in COMMANDS}:
        raise SystemExit(f"no command is named {', '.join(sorted(unknown))}; --list shows all names")
    if names:
        return [command for command in COMMANDS if command.name in names]
    return [command for command in COMMANDS if peers or not command.needs_peers]


def short_words(command: Command) -> list[str]:
    """The script and the arguments of the short form of a command."""
    return [str(figures.ROOT / "benchmarks" / command.words.split()[0]), *(command.short or "").split()]


def run(command: Command) -> tuple[int, dict[str, Figure], figures.Run]:
    """Run a command between two measurements of the yardsticks; return its exit code and figures."""
    print(f"\n$ {command.text}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures"
        path.touch()
        before = figures.yardsticks()
        words = [str(figures.ROOT / "benchmarks" / command.words.split()[0]), *command.words.split()[1:]]
        code = subprocess.run(
            [sys.executable, *words], cwd=figures.ROOT, env={**os.environ, figures.RECORDS: str(path)}, check=False
        ).returncode
        zlib, memcpy = (max(pair) for pair in zip(before, figures.yardsticks(), strict=True))
        found = figures.recorded(path, command.name)
    return code, found, figures.Run(command.text, figures.machine(), round(zlib), round(memcpy, 1))


def crashed(command: Command) -> bool:
    """Run the short form of a command, print what it printed, and return whether it ended in an error.

    Its exit code judges claims, which mean nothing.
    """
    words = [sys.executable, *short_words(command)]
    done = subprocess.run(words, cwd=figures.ROOT, capture_output=True, text=True, check=False)
    print(f"\n$ python benchmarks/{command.words.split()[0]} {command.short}\n{done.stdout}{done.stderr}", flush=True)
    return "Traceback" in done.stderr


def keep(command: Command, found: Mapping[str, Figure], made: figures.Run) -> None:
    """Replace the figures of a command in `figures.json` and in the pages."""
    stored, runs = figures.load()
    stored = {name: figure for name, figure in stored.items() if figure.run != command.name} | dict(found)
    runs[command.name] = made
    figures.save(stored, runs)
    for page in figures.pages():
        figures.requote(page, dict(found) | figures.of_runs({command.name: made}))


def compared(
    quotations: Iterable[Quotation], stored: Mapping[str, Figure], found: Mapping[str, Figure], ran: Iterable[str]
) -> list[tuple[str, bool]]:
    """Return a line for each quotation whose command ran, and whether it is off."""
    rows: list[tuple[str, bool]] = []
    for quotation in quotations:
        run_name, _, rest = quotation.name.partition(".")
        if run_name not in set(ran) or rest == "run":
            continue
        old, new = stored.get(quotation.name), found.get(quotation.name)
        head = f"{quotation.page.name:16} {quotation.name:52} {quotation.text:>12}"
        if old is None or new is None:
            rows.append((f"{head} {'not stored' if old is None else 'not measured':>12} {'':>7}  OFF", True))
            continue
        off = figures.is_off(old.value, new.value) or quotation.text != figures.shown(old)
        numbers = isinstance(old.value, float | int) and isinstance(new.value, float | int) and old.value != 0
        ratio = f"{float(new.value) / float(old.value):.2f}" if numbers else ""
        rows.append((f"{head} {figures.shown(new):>12} {ratio:>7}{'  OFF' if off else ''}", off))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="run these commands alone")
    parser.add_argument("--peers", action="store_true", help="run the commands that need other libraries, too")
    parser.add_argument("--keep", action="store_true", help="write figures.json and the pages")
    parser.add_argument("--short", action="store_true", help="run the short forms alone, and compare nothing")
    parser.add_argument("--list", action="store_true", help="print all commands and end")
    options = parser.parse_args()
    if options.list:
        for command in COMMANDS:
            print(f"{command.name:18} {command.text}")
        return 0
    if options.short:
        return int(sum(crashed(command) for command in COMMANDS if command.short is not None) > 0)
    stored, _ = figures.load()
    before = [quotation for page in figures.pages() for quotation in figures.quotations(page)]
    found: dict[str, Figure] = {}
    failed: list[str] = []
    commands = chosen(options.only, options.peers)
    for command in commands:
        code, measured, made = run(command)
        found |= measured
        if code != 0:
            failed.append(f"{command.text} ended with exit code {code}")
        elif options.keep:
            keep(command, measured, made)
    rows = compared(before, stored, found, [command.name for command in commands])
    print(f"\n{'page':16} {'figure':52} {'quoted':>12} {'measured':>12} {'ratio':>7}")
    print("\n".join(line for line, _ in rows))
    print("\n".join(failed))
    off = sum(is_off for _, is_off in rows)
    print(f"{off} of {len(rows)} figures are off by more than a third")
    return int(off > 0 or bool(failed))


if __name__ == "__main__":
    sys.exit(main())
