"""Fixtures of the tests of statuses."""

from __future__ import annotations

import pytest

from phalanx.status import status_writer

GATHER = 0.01


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes within a hundredth of a second are written together, so that tests need not wait longer."""
    monkeypatch.setattr(status_writer, "GATHER", GATHER)
