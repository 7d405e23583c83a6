"""How the tables came to be, as Alembic keeps it."""
