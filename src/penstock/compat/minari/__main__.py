"""`python -m penstock.compat.minari`: the command line of the compatible API."""

from __future__ import annotations

from penstock.compat.minari.cli import app

if __name__ == "__main__":
    app(prog_name="python -m penstock.compat.minari")
