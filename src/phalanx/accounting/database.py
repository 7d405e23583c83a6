"""Database of recorded usage: an SQLite file, or PostgreSQL by its URL."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, NoSuchModuleError, OperationalError

from phalanx.accounting import migrations

ENVIRONMENT = "PHALANX_ACCOUNTING_DATABASE"
_WRITING = "phalanx_writing"
# Seconds to wait for an SQLite file that another process is writing to.
_PATIENCE = 30
# PostgreSQL advisory lock of the writers of accounts.
_LOCK = 0x7068616C
_MIGRATIONS = Path(migrations.__file__).parent


class DatabaseError(Exception):
    """Error for an unusable usage database; the text is for users and never has a password. An `unreachable` one
    can recover later."""

    def __init__(self, text: str, *, unreachable: bool = False) -> None:
        super().__init__(text)
        self.unreachable = unreachable


def parse_location(location: str) -> URL:
    """Return the database URL for a URL or for the path of an SQLite file. Raises DatabaseError for other texts."""
    if "://" not in location:
        return URL.create("sqlite", database=str(Path(location).expanduser()))
    try:
        url = make_url(location)
        if url.get_backend_name() in ("postgres", "postgresql"):
            return url.set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError) as error:
        raise DatabaseError("invalid database URL; expected one like postgresql://user@host/name") from error
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        raise DatabaseError("unsupported database; expected sqlite:///FILE or postgresql://user@host/name")
    return url


class Database:
    """Database of recorded usage; its `writing` transactions run one at a time across processes, and each sees the
    previous one."""

    def __init__(self, location: str) -> None:
        self._url = parse_location(location)
        self._file = Path(self._url.database or "") if self._url.get_backend_name() == "sqlite" else None
        self.engine = self._connect()

    @property
    def name(self) -> str:
        """Location of the database for messages, without a password."""
        return str(self._file) if self._file is not None else self._url.render_as_string(hide_password=True)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a write transaction that is committed at the end, or rolled back on an exception. Raises
        DatabaseError."""
        connecting = self.engine.connect
        with (
            self._translated_errors(),
            connecting().execution_options(**{_WRITING: True}) as connection,
            connection.begin(),
        ):
            if self._file is None:
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            yield connection

    @contextmanager
    def reading(self, *, check: bool = True) -> Iterator[Connection]:
        """Open a read transaction that sees one snapshot despite concurrent writers. Raises DatabaseError.

        Without `check` the tables are not compared with this release: `upgrade` has done so in this process.
        """
        if self._file is not None and not self._file.exists():
            raise DatabaseError(
                f"no accounts at {self._file}: start `phalanx accounting run` with this database, or name "
                "the database of your cluster with --database or PHALANX_ACCOUNTING_DATABASE"
            )
        with self._translated_errors(), self.engine.connect() as connection:
            if self._file is None:
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                if self._file is None:
                    # JIT compilation of a report's statements takes longer than their execution.
                    connection.execute(text("SET LOCAL jit = off"))
                if check:
                    self._check(connection)
                yield connection

    def upgrade(self) -> None:
        """Create the database tables, or migrate them to this release. Raises DatabaseError."""
        if self._file is not None:
            _make_private(self._file)
        with self.writing() as connection:
            if _revision(connection) == revisions()[-1]:
                return
            self._refuse_newer(connection)
            # Readers do without: the import of alembic takes longer than a query.
            from alembic import command
            from alembic.config import Config

            config = Config()
            config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def close(self) -> None:
        self.engine.dispose()

    def _check(self, connection: Connection) -> None:
        current = _revision(connection)
        if current == revisions()[-1]:
            return
        self._refuse_newer(connection)
        state = "holds no accounts" if current is None else "has the tables of an earlier release"
        raise DatabaseError(f"{self.name} {state}: start `phalanx accounting run` on it once")

    def _refuse_newer(self, connection: Connection) -> None:
        current = _revision(connection)
        if current is not None and current not in revisions():
            raise DatabaseError(f"{self.name} has the tables of a later release ({current}); use that release")

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            # str(error) would include the statement and the values that were to be written.
            lines = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
            unreachable = isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated
            kind = "cannot be used now" if unreachable else "refused"
            raise DatabaseError(f"the database {self.name} {kind}: {lines[0]}", unreachable=unreachable) from error

    def _connect(self) -> Engine:
        if self._file is None:
            try:
                return create_engine(self._url, pool_pre_ping=True, connect_args={"connect_timeout": 10})
            except (NoSuchModuleError, ModuleNotFoundError) as error:
                raise DatabaseError(
                    "PostgreSQL needs a driver: pip install 'phalanx-scheduler[postgresql]'"
                ) from error
        engine = create_engine(self._url, connect_args={"timeout": _PATIENCE})

        @event.listens_for(engine, "connect")
        def prepare(raw: object, record: object) -> None:
            # The driver must not open transactions of its own: the `begin` handler opens them for reads, too.
            raw.isolation_level = None  # type: ignore[attr-defined]
            cursor = raw.cursor()  # type: ignore[attr-defined]
            for pragma in ("journal_mode=WAL", "foreign_keys=ON", "synchronous=FULL"):
                cursor.execute(f"PRAGMA {pragma}")
            cursor.close()

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            writes = connection.get_execution_options().get(_WRITING)
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

        return engine


def _make_private(file: Path) -> None:
    """Create the database file with access for its owner only, because usage data is personal."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise DatabaseError(f"cannot create {file}: {error.strerror}") from error


def _revision(connection: Connection) -> str | None:
    """Return the revision of the tables; None for a database without tables of ours."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision


@functools.cache
def revisions() -> tuple[str, ...]:
    """Return the revisions of the tables that this release knows, oldest first: the numbers of the migrations."""
    names = sorted(path.stem for path in (_MIGRATIONS / "versions").glob("m[0-9]*.py"))
    return tuple(name[1:].partition("_")[0] for name in names)
