"""Every test that takes `location` runs on SQLite and on a real PostgreSQL, where its programs are installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete

from phalanx.accounting.database import Database
from phalanx.accounting.tables import metadata
from tests.accounting.postgres import Postgres, binaries

# These tests are equal on both databases; most of them run on PostgreSQL with the slow tests only.
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


@pytest.fixture(scope="session")
def sqlite_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of a file with empty tables, to be copied."""
    file = tmp_path_factory.mktemp("accounts") / "accounts.db"
    make_tables(str(file))
    return file


@pytest.fixture(scope="session")
def postgres_tables(postgres: Postgres) -> str:
    """URL of a database with tables, to be emptied."""
    url = postgres.new_url()
    make_tables(url)
    return url


def make_tables(location: str) -> None:
    database = Database(location)
    database.upgrade()
    database.close()


@pytest.fixture
def ready_made() -> None:
    """`location` has empty tables: they are made once per session, and not once per test."""


@pytest.fixture(params=["sqlite", "postgresql"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Location of a database without tables, or with empty ones (`ready_made`)."""
    ready = "ready_made" in request.fixturenames
    if request.param == "sqlite":
        file = tmp_path / "accounts.db"
        if ready:
            shutil.copy(request.getfixturevalue("sqlite_tables"), file)
        return str(file)
    if not ready:
        server: Postgres = request.getfixturevalue("postgres")
        return server.new_url()
    url: str = request.getfixturevalue("postgres_tables")
    database = Database(url)
    empty(database)
    database.close()
    return url


def empty(database: Database) -> None:
    """Delete all rows."""
    with database.writing() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(delete(table))


@pytest.fixture
def database(ready_made: None, location: str) -> Iterator[Database]:
    made = Database(location)
    yield made
    made.close()
