"""`python -m penstock`: the same as the command `penstock`."""

from __future__ import annotations

from penstock.cli.main import main

if __name__ == "__main__":
    main("penstock")  # the name that shell completion is installed for
