"""One API server for all tests of `phalanx top`, with the tenants of the page's tests."""

from __future__ import annotations

from tests.dashboard.conftest import site

__all__ = ["site"]
