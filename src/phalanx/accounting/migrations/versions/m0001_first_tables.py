"""Migration that creates the tables of payers, runs, members, and usage per day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "properties",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "payers",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
    )
    op.create_index("payers_by_content", "payers", ["namespace", "queue", "user"], unique=True)
    op.create_index("payers_by_user", "payers", ["user"])
    op.create_table(
        "runs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
        sa.Column("uid", sa.Text, nullable=False),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("gang", sa.Text, nullable=False),
        sa.Column("gang_uid", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("payer", sa.Integer, sa.ForeignKey("payers.id"), nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("submitted", sa.BigInteger, nullable=False),
        sa.Column("admitted", sa.BigInteger),
        sa.Column("admitted_precision", sa.SmallInteger, nullable=False),
        sa.Column("started", sa.BigInteger),
        sa.Column("wait", sa.BigInteger),
        sa.Column("ended", sa.BigInteger),
        sa.Column("end_precision", sa.SmallInteger, nullable=False),
        sa.Column("members", sa.Integer, nullable=False),
        sa.Column("evictions", sa.Integer, nullable=False),
    )
    op.create_index("runs_by_uid", "runs", ["uid"], unique=True)
    op.create_index("runs_by_gang", "runs", ["namespace", "gang", "id"])
    op.create_index("runs_by_start", "runs", ["payer", "started", "wait"])
    op.create_index("runs_by_state", "runs", ["payer", "state", "ended"])
    op.create_index("runs_by_end", "runs", ["ended"])
    op.create_table(
        "members",
        sa.Column("uid", sa.Text, primary_key=True),
        sa.Column("run", sa.BigInteger, sa.ForeignKey("runs.id"), nullable=False),
        sa.Column("payer", sa.Integer, sa.ForeignKey("payers.id"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("bound", sa.BigInteger),
        sa.Column("bound_precision", sa.SmallInteger, nullable=False),
        sa.Column("ended", sa.BigInteger),
        sa.Column("end_precision", sa.SmallInteger, nullable=False),
        sa.Column("ended_before", sa.BigInteger),
        sa.Column("leaves", sa.BigInteger),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("evicted", sa.BigInteger),
        sa.Column("parts", sa.Text, nullable=False),
    )
    op.create_index("members_by_run", "members", ["run"])
    op.create_index("members_by_end", "members", ["ended", "bound"])
    op.create_table(
        "usage",
        sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("payer", sa.Integer, sa.ForeignKey("payers.id"), primary_key=True, autoincrement=False),
        sa.Column("resource", sa.Text, primary_key=True),
        sa.Column("used_high", sa.BigInteger, nullable=False),
        sa.Column("used_low", sa.BigInteger, nullable=False),
        sa.Column("evicted_high", sa.BigInteger, nullable=False),
        sa.Column("evicted_low", sa.BigInteger, nullable=False),
        sa.Column("failed_high", sa.BigInteger, nullable=False),
        sa.Column("failed_low", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "forgotten",
        sa.Column("uid", sa.Text, primary_key=True),
        sa.Column("since", sa.BigInteger, nullable=False),
    )
