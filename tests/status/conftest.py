"""What tests of statuses share."""

from __future__ import annotations

import pytest

from phalanx.status import status_writer

GATHER = 0.01


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are written together that come within a hundredth of a second, so that tests need not wait longer."""
    monkeypatch.setattr(status_writer, "GATHER", GATHER)
