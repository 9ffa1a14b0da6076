"""Fixtures of the commands. `penstock view` needs an extra, penstock-studio."""

from importlib.util import find_spec

from tests.cli.conftest import call, recording  # noqa: F401 - fixtures

collect_ignore = [] if find_spec("penstock_studio") else ["test_view.py"]
