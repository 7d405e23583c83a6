"""Short constructors of pods and gangs for the recorder, and the rows of its tables."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from phalanx.accounting.database import Database
from phalanx.accounting.facts import GangFact, PodFact, key_of
from phalanx.accounting.recorder import GangChange, Recorder
from phalanx.accounting.records import Clock
from phalanx.accounting.tables import members, payers, runs, usage
from phalanx.model.gang import GangKey

#: A midnight.
T0 = 1_700_006_400
CPU = (("cpu", 1000), ("memory", 2**30))


def a_pod(uid: str, gang: str = "g", **what: Any) -> PodFact:
    """Return a pod of namespace ml, created at T0."""
    content: dict[str, Any] = {
        "namespace": "ml",
        "name": uid,
        "role": "",
        "queue": "default",
        "user": "",
        "node": "",
        "amounts": CPU,
        "created": T0,
        "placed": False,
        "bound": 0,
    }
    content.update(what)
    if content["bound"]:
        content["placed"], content["node"] = True, "n1"
    return PodFact(uid=uid, gang=gang, **content)


def a_gang(uid: str = "G", name: str = "g", **what: Any) -> GangFact:
    content: dict[str, Any] = {
        "namespace": "ml",
        "kind": "PodGroup.scheduling.volcano.sh",
        "queue": "default",
        "created": T0,
        "admission": False,
        "admitted": True,
        "declared": True,
    }
    return GangFact(uid=uid, name=name, **{**content, **what})


def changes(*facts: PodFact, gang: GangFact | None = None, gone: str = "") -> list[GangChange]:
    """Return changes with one pod of each gang; `gone` is a gang whose object was deleted."""
    found: dict[GangKey, GangChange] = {}
    for fact in facts:
        key = key_of(fact)
        declares = gang if gang is not None and gang.name == fact.gang else None
        change = found.setdefault(key, GangChange(key, declares, [], []))
        change.pods.append(fact)
    if gang is not None:
        key = GangKey(gang.namespace, gang.name)
        found.setdefault(key, GangChange(key, gang, [], []))
    if gone:
        found.setdefault(GangKey("ml", gone), GangChange(GangKey("ml", gone), None, [], []))
    return list(found.values())


def tell(
    database: Database,
    now: int,
    *facts: PodFact,
    gang: GangFact | None = None,
    gone: str = "",
    watched: bool = True,
) -> None:
    Recorder(database).record(changes(*facts, gang=gang, gone=gone), Clock(T0 + now, watched))


def rows(database: Database, table: str) -> list[dict[str, Any]]:
    """Return the rows in a fixed order, with accounts by content."""
    chosen = {"runs": runs, "members": members, "usage": usage}[table]
    with database.reading() as connection:
        wanted = select(chosen, payers.c.namespace, payers.c.queue, payers.c.user)
        found = connection.execute(wanted.join(payers, payers.c.id == chosen.c.payer)).mappings().all()
    lines = [dict(each) for each in found]
    for line in lines:
        del line["payer"]
    return sorted(lines, key=lambda line: [str(each) for each in line.values()])


def only(database: Database) -> dict[str, Any]:
    """The only run that there is."""
    (run,) = rows(database, "runs")
    return run
