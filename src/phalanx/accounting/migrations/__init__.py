"""Alembic migrations of the usage database."""
