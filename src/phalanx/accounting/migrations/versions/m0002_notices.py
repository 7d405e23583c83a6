"""Migration that adds notifications: the subscription of a run, and the notices to send."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("notify", sa.Text, nullable=False, server_default=""))
    op.create_table(
        "notices",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("recipient", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("due", sa.BigInteger),
        sa.Column("attempts", sa.Integer, nullable=False),
    )
    op.create_index("notices_by_due", "notices", ["due"])
    op.create_index("notices_by_run", "notices", ["run"])


def downgrade() -> None:
    op.drop_table("notices")
    op.drop_column("runs", "notify")
