"""The tables of the accounts. How they came to be is in `migrations/`; a test compares the two.

All moments are seconds since the epoch, UTC; 0 is never a moment, NULL is one that is not known or has not come.
A `precision` says how a moment is known (`phalanx.accounting.facts.Precision`).
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, MetaData, SmallInteger, Table, Text

metadata = MetaData()

#: What holds for the whole database: the cluster that it belongs to, and until when that was watched.
properties = Table(
    "properties",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

#: Who is charged: every combination that has been seen, once.
payers = Table(
    "payers",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("namespace", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("user", Text, nullable=False),
    Index("payers_by_content", "namespace", "queue", "user", unique=True),
    Index("payers_by_user", "user"),
)

#: One line a run of a gang. `uid` is that of the object that declared it before it had members, else that of the
#: first member; `gang_uid` that of the gang's object or owner, "" where it has none. `wait` is from `submitted` to
#: `started`, in seconds. A pod on its own is a gang of one, with `gang` "".
runs = Table(
    "runs",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("uid", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("gang", Text, nullable=False),
    Column("gang_uid", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("payer", Integer, ForeignKey("payers.id"), nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("submitted", BigInteger, nullable=False),
    Column("admitted", BigInteger),
    Column("admitted_precision", SmallInteger, nullable=False),
    Column("started", BigInteger),
    Column("wait", BigInteger),
    Column("ended", BigInteger),
    Column("end_precision", SmallInteger, nullable=False),
    Column("members", Integer, nullable=False),
    Column("evictions", Integer, nullable=False),
    Index("runs_by_uid", "uid", unique=True),
    Index("runs_by_gang", "namespace", "gang", "id"),
    # Reports count without sorting, payer by payer.
    Index("runs_by_start", "payer", "started", "wait"),
    Index("runs_by_state", "payer", "state", "ended"),
    Index("runs_by_end", "ended"),
)

#: One line a pod. It held `parts`, a JSON list of [from, until, {resource: amount}] in which only the last `until`
#: may be null; amounts are in the units of `phalanx.model.resources`. `payer` is settled when it gets its node.
members = Table(
    "members",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("run", BigInteger, ForeignKey("runs.id"), nullable=False),
    Column("payer", Integer, ForeignKey("payers.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("bound", BigInteger),
    Column("bound_precision", SmallInteger, nullable=False),
    Column("ended", BigInteger),
    Column("end_precision", SmallInteger, nullable=False),
    #: Not after this it has ended, where `ended` is only the last moment at which it was known to be there.
    Column("ended_before", BigInteger),
    Column("leaves", BigInteger),
    Column("outcome", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("evicted", BigInteger),
    Column("parts", Text, nullable=False),
    Index("members_by_run", "run"),
    Index("members_by_end", "ended", "bound"),
)

#: What pods that have ended held on a day (days since the epoch), in amount times seconds: exact integers beyond 63
#: bits, each in two columns, `high` * 2**32 + `low` (see `phalanx.accounting.sums`).
usage = Table(
    "usage",
    metadata,
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("payer", Integer, ForeignKey("payers.id"), primary_key=True, autoincrement=False),
    Column("resource", Text, primary_key=True),
    Column("used_high", BigInteger, nullable=False),
    Column("used_low", BigInteger, nullable=False),
    Column("evicted_high", BigInteger, nullable=False),
    Column("evicted_low", BigInteger, nullable=False),
    Column("failed_high", BigInteger, nullable=False),
    Column("failed_low", BigInteger, nullable=False),
)

#: Uids of pods and gangs whose records were removed while their objects may still be there: they are not recorded
#: anew. The recorder drops those whose objects are gone.
forgotten = Table(
    "forgotten",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("since", BigInteger, nullable=False),
)
