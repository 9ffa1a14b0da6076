"""Tables of the site that follow from code and tests, in place of markers such as `<!-- formats -->`."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from penstock.cli.formats import describe
from penstock.formats.base.findings import finding_kinds
from penstock.formats.base.format import Format, available

PAGES = Path(__file__).parent / "formats"
ROOT = Path(__file__).parents[1]
# The formats of each kind of finding: `tests/doctor/test_findings_of_formats.py` plants each of them, and no other.
FINDINGS_OF_FORMATS = Path(__file__).parent / "reference" / "findings.json"
# The formats in which `penstock repair` mends it: `tests/doctor/test_repair.py` mends each of them.
REPAIRS_OF_FORMATS = Path(__file__).parent / "reference" / "repairs.json"
ELSEWHERE = {
    "l5kit": "../driving/logs.md",
    **dict.fromkeys(("argoverse2", "waymo", "nuplan", "py123d"), "../driving/sets.md"),
    "lc0": "../chess/lc0.md",
    "native": "../imitation/native.md",
}
FEW = 3  # formats that are named as exceptions


def formats_table() -> str:
    """A row for each format that is installed. The data links to the page of the format, if it has one."""
    header = "| format | data | reads | writes | appends | extras |\n|---|---|---|---|---|---|\n"
    return header + "\n".join(_row(entry) for entry in available().values())


def _row(entry: Format) -> str:
    found = describe(entry)
    page = ELSEWHERE.get(entry.name, f"{entry.name}.md")
    data = f"[{entry.description}]({page})" if (PAGES / page).exists() else entry.description
    abilities = ["yes" if found[ability] else "no" for ability in ("writes", "appends")]
    extras = ", ".join(f"`{extra}`" for extra in entry.extras) or "none"
    return " | ".join([f"| `{entry.name}`", data, "yes", *abilities, extras]) + " |"


def findings_table() -> str:
    """A row for each kind of finding, with the formats in which the tests plant, find and mend it."""
    header = "| name | level | formats | `repair` mends it in | meaning | what to do |\n|---|---|---|---|---|---|\n"
    formats = json.loads(FINDINGS_OF_FORMATS.read_text("utf-8"))
    known = sorted({name for names in formats.values() for name in names})
    repairs = json.loads(REPAIRS_OF_FORMATS.read_text("utf-8"))
    rows = (
        f"| `{name}` | {kind.level} | {_named(formats[name], known)} | {', '.join(repairs.get(name, []))} | "
        f"{kind.meaning} | {kind.remedy} |"
        for name, kind in finding_kinds().items()
    )
    return header + "\n".join(rows)


def _named(names: Sequence[str], known: Sequence[str]) -> str:
    """The names, or the few that are missing."""
    missing = [name for name in known if name not in names]
    if len(missing) > FEW:
        return ", ".join(names)
    return f"all but {', '.join(missing)}" if missing else "all"


def reports_table() -> str:
    """A row for each `@report(reference, property)` of the tests, by project and number."""
    rows: set[tuple[str, int, str]] = set()
    for file in (*ROOT.glob("tests/reports/test_*.py"), *ROOT.glob("packages/*/tests/*/test_*_reports.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "report":
                reference, meaning = (ast.literal_eval(argument) for argument in node.args)
                project, _, number = reference.partition("#")
                rows.add((project, int(number), meaning))
    header = "| project | number | property |\n|---|---|---|\n"
    return header + "\n".join(f"| {project} | {number} | {meaning} |" for project, number, meaning in sorted(rows))


# What each extra of the core is for; the packages come from `pyproject.toml`.
EXTRAS = {
    "gymnasium": "record environments of Gymnasium",
    "classic": "Gymnasium's classic environments, such as CartPole, with their pictures",
    "mujoco": "Gymnasium's MuJoCo environments",
    "torch": "batches as PyTorch tensors",
    "jax": "batches as JAX arrays",
    "sb3": "the buffers and vectorised environments of Stable-Baselines3",
    "minari": "datasets of Minari",
    "arrow": "Parquet and Arrow: tables, LeRobot, Minari",
    "images": "JPEG, PNG and other pictures",
    "jpeg": "faster JPEG",
    "jpegxl": "pictures in Zarr stores as JPEG XL",
    "video": "video files",
    "audio": "sound files",
    "zarr": "compressed Zarr stores",
    "zstd": "data that is compressed with Zstandard",
    "msgpack": "MessagePack in tar shards",
    "cbor": "CBOR in tar shards",
    "remote": "data behind URLs",
    "hf": "datasets of Hugging Face, and writing to its hub",
    "s3": "S3 and compatible storages",
    "gcp": "Google Cloud Storage",
    "config": "settings in YAML, of L5Kit and il-representations",
    "plot": "pictures of figures and curves",
    "jit": "compiling kernels of a clone, or of your own",
    "demo": "all that `make demo` needs; with Atari, which is under the GPL",
    "all": "everything but packages under the GPL",
}


def extras_table() -> str:
    """A row for each extra of the core, and for each package and its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    rows = ["| extra | for | installs |", "|---|---|---|"]
    for extra, use in EXTRAS.items():
        names = (re.split(r"[<>=!~;\[ ]", wanted)[0] for wanted in project["optional-dependencies"][extra])
        installs = "" if extra in ("all", "demo") else ", ".join(f"`{name}`" for name in names)
        rows.append(f"| `{extra}` | {use} | {installs} |")
    rows += ["", "| package | for | its extras |", "|---|---|---|"]
    for file in sorted(ROOT.glob("packages/*/pyproject.toml")):
        package = tomllib.loads(file.read_text("utf-8"))["project"]
        use = package["description"].rstrip(".").replace(" for penstock", "").replace(", for penstock", "")
        extras = ", ".join(f"`{extra}`" for extra in package.get("optional-dependencies", {}))
        rows.append(f"| `{package['name']}` | {use} | {extras} |")
    return "\n".join(rows)


TABLES = {
    "<!-- extras -->": extras_table,
    "<!-- formats -->": formats_table,
    "<!-- findings -->": findings_table,
    "<!-- reports -->": reports_table,
}


def filled(text: str) -> str:
    """The text of a page with a table in the place of each marker."""
    for marker, table in TABLES.items():
        if marker in text:
            text = text.replace(marker, table())
    return text
