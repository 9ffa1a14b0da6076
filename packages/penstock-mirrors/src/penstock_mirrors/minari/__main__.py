"""`python -m penstock_mirrors.minari`: the command line of the compatible API."""

from __future__ import annotations

from penstock_mirrors.minari.cli import app

if __name__ == "__main__":
    app(prog_name="python -m penstock_mirrors.minari")
