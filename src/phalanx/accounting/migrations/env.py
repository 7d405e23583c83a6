"""Alembic runs this. The connection, within a transaction, is given by `phalanx.accounting.database`."""

from __future__ import annotations

from alembic import context

from phalanx.accounting.tables import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=False
)
context.run_migrations()
