"""Fixtures of the commands."""

from tests.cli.conftest import call, recording  # noqa: F401 - fixtures
