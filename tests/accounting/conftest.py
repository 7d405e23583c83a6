"""Every test that takes `location` runs on SQLite and on a real PostgreSQL, where its programs are installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.accounting.database import Database
from tests.accounting.postgres import Postgres, binaries

# What they test is the same on both; of these PostgreSQL's turn comes with the slow tests.
_ABOVE = ("test_commands.py", "test_service.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        parameters = getattr(item, "callspec", None)
        above = item.path.name in _ABOVE and item.path.parent == Path(__file__).parent
        if above and parameters is not None and parameters.params.get("location") == "postgresql":
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    programs = binaries()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    server = Postgres(programs)
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a database that is empty."""
    if request.param == "sqlite":
        return str(tmp_path / "accounts.db")
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_url()


@pytest.fixture
def database(location: str) -> Iterator[Database]:
    made = Database(location)
    made.upgrade()
    yield made
    made.close()
