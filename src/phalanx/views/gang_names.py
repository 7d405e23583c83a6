"""Names of the gangs in a cluster's state, and the resolution of names that users type.

`phalanx.model.gang_names` has the rules. Views print `GangRecord.title`, or `shown` next to a namespace column.
Commands resolve their gang arguments here.
"""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import GangKey
from phalanx.model.gang_names import AmbiguousGangError, facts_of, find_gangs

__all__ = ["AmbiguousGangError", "gang_kind", "gangs_named", "shown", "target"]


def shown(record: GangRecord) -> str:
    """Return the shown name of a gang without its namespace."""
    return record.title.removeprefix(f"{record.key.namespace}/")


def gang_kind(record: GangRecord) -> str:
    """Return the word for the kind of a gang's job (vcjob, pytorchjob, ...); podgroup for a gang without a job."""
    return facts_of(record.key, record.spec).kind


def target(record: GangRecord) -> str:
    """Return the gang's name as KIND/NAME, the form that commands accept."""
    kind, name = gang_kind(record), shown(record)
    return name if name.startswith(f"{kind}/") else f"{kind}/{name}"


def gangs_named(gangs: Mapping[GangKey, GangRecord], namespace: str, typed: str, kind: str = "") -> list[GangKey]:
    """Return the gangs that a user means, sorted; there are several only if one job has several gangs.

    `typed` and `kind` are arguments of `find_gangs`. Raises AmbiguousGangError.
    """
    facts = {key: facts_of(key, gangs[key].spec) for key in gangs if key.namespace == namespace}
    return find_gangs(facts, namespace, typed, kind)
