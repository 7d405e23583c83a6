"""Tables of the usage database. Their history is in `migrations/`; a test compares the two.

All times are seconds since the epoch, UTC; 0 is not a time, NULL is an unknown or future one.
A `precision` is the source of a time (`phalanx.accounting.facts.Precision`).
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, MetaData, SmallInteger, Table, Text

metadata = MetaData()

#: Properties of the whole database: its cluster, and the time until which that was watched.
properties = Table(
    "properties",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

#: Charged combinations of namespace, queue and user, each once.
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

#: One row per run of a gang. `uid` is that of the object that declared it before it had members, else that of the
#: first member; `gang_uid` is that of the gang's object or owner, "" if it has none. `wait` is from `submitted` to
#: `started`, in seconds. A single pod is a gang of one, with `gang` "".
#: `notify` is the subscription that its pods state, as JSON.
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
    Column("notify", Text, nullable=False, server_default=""),
    Index("runs_by_uid", "uid", unique=True),
    Index("runs_by_gang", "namespace", "gang", "id"),
    # Reports count payer by payer, without sorting.
    Index("runs_by_start", "payer", "started", "wait"),
    Index("runs_by_state", "payer", "state", "ended"),
    Index("runs_by_end", "ended"),
)

#: One row per pod. `parts` is its usage, a JSON list of [from, until, {resource: amount}] in which only the last
#: `until` can be null; amounts are in the units of `phalanx.model.resources`. `payer` is fixed at the binding.
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
    #: Latest possible end, if `ended` is only the last time at which the pod was known to exist.
    Column("ended_before", BigInteger),
    Column("leaves", BigInteger),
    Column("outcome", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("evicted", BigInteger),
    Column("parts", Text, nullable=False),
    Index("members_by_run", "run"),
    Index("members_by_end", "ended", "bound"),
)

#: Usage of ended pods per day (days since the epoch), in amount times seconds: exact integers beyond 63
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

#: Uids of pods and gangs whose records were removed while their objects can still exist: they are not recorded
#: again. The recorder deletes a uid once its object is deleted.
forgotten = Table(
    "forgotten",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("since", BigInteger, nullable=False),
)

#: Notifications to send at `due` (NULL: sent or dropped), with the uid of their run. The id is the same for the
#: same event, target and recipient.
notices = Table(
    "notices",
    metadata,
    Column("id", Text, primary_key=True),
    Column("run", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("recipient", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("due", BigInteger),
    Column("attempts", Integer, nullable=False),
    Index("notices_by_due", "due"),
    Index("notices_by_run", "run"),
)
