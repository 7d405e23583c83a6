"""Alembic environment of the usage database. `phalanx.accounting.database` passes the connection, within a
transaction."""

from __future__ import annotations

from alembic import context

from phalanx.accounting.tables import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=False
)
context.run_migrations()
