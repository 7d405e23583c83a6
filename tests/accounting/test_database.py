"""Databases of accounts: the creation of their tables, and messages about unusable ones."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from phalanx.accounting import migrations
from phalanx.accounting.database import Database, DatabaseError, parse_location, revisions
from phalanx.accounting.recorder import Recorder
from phalanx.accounting.tables import metadata
from tests.accounting.postgres import Postgres


@pytest.fixture
def database(location: str) -> Iterator[Database]:
    """Database whose tables are created for one test alone."""
    made = Database(location)
    made.upgrade()
    yield made
    made.close()


def test_the_migrations_make_the_tables_that_the_code_means(database: Database) -> None:
    with database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_last_revision_by_file_names_is_the_head_of_the_migrations() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    script = ScriptDirectory.from_config(config)
    assert revisions()[-1] == script.get_current_head()
    assert set(revisions()) == {each.revision for each in script.walk_revisions()}


def test_reading_imports_no_migration_library(database: Database, location: str) -> None:
    code = f"""
import sys
from phalanx.accounting.database import Database
with Database({location!r}).reading():
    print(*({{"alembic", "mako", "pygments", "numpy"}} & set(sys.modules)))
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == []


def test_tables_can_be_created_twice(database: Database) -> None:
    Recorder(database).adopt("uid")
    database.upgrade()
    assert Recorder(database).adopt("uid") == 0


def test_the_tables_of_a_later_release_are_left_alone(database: Database) -> None:
    with database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseError, match="later release"):
        database.upgrade()
    with pytest.raises(DatabaseError, match="later release"), database.reading():
        pass


def test_empty_database_names_the_command_to_run(location: str) -> None:
    database = Database(location)
    with pytest.raises(DatabaseError, match=r"phalanx accounting run"), database.reading():
        pass
    database.close()


def test_a_file_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "new" / "accounts.db"
    database = Database(str(file))
    database.upgrade()
    database.close()
    for path in file.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DatabaseError, match="cannot be made"):
        Database(str(tmp_path / "accounts.db")).upgrade()


def test_a_file_that_is_no_database_is_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("This is no database, and longer than the head of one would be." * 10)
    database = Database(str(file))
    with pytest.raises(DatabaseError, match="not a database"):
        database.upgrade()
    database.close()
    assert file.read_text().startswith("This is no database")


@pytest.mark.parametrize(
    "location", ["mysql://x/y", "sqlite://", "sqlite:///:memory:", "postgresql://h:port/x", "://"]
)
def test_unusable_url_is_refused(location: str) -> None:
    with pytest.raises(DatabaseError):
        parse_location(location)


def test_postgresql_url_accepts_the_common_spellings() -> None:
    for scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        url = parse_location(f"{scheme}://ada@db.example/accounts")
        assert url.drivername == "postgresql+psycopg"


def test_a_password_is_in_no_error() -> None:
    database = Database("postgresql://ada:geheim@127.0.0.1:1/accounts")
    assert "geheim" not in database.name
    with pytest.raises(DatabaseError, match="cannot be used now") as told:
        database.upgrade()
    assert "geheim" not in str(told.value)
    assert told.value.unreachable
    database.close()


def test_writers_take_turns(location: str) -> None:
    first, second = Database(location), Database(location)
    first.upgrade()
    Recorder(first).record_watched_until(5)
    Recorder(second).record_watched_until(9)
    Recorder(first).record_watched_until(7)
    assert Recorder(second).adopt("") == 9
    first.close()
    second.close()


def test_a_database_that_comes_back_is_used_again(postgres: Postgres) -> None:
    database = Database(postgres.new_url())
    database.upgrade()
    with database.engine.connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid()"
            )
        )
    Recorder(database).record_watched_until(5)
    assert Recorder(database).adopt("") == 5
    database.close()
