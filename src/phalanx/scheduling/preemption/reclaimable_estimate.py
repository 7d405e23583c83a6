"""Estimate of the amounts that a gang without pods could reclaim if it were admitted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from phalanx.cluster.accounts import AccountRecord, ChargePath, add_amounts
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.scheduling.preemption.reclaimees import Reclaimees
from phalanx.scheduling.session.session import Session


class AnnouncedPreemptor:
    """Gang as a preemptor by its announced size (minResources)."""

    surplus = False

    def __init__(self, session: Session, gang: GangRecord) -> None:
        spec = gang.spec
        wanted = dict(spec.min_resources or ()) if spec is not None else {}
        self.charge_paths: dict[ChargePath, dict[str, int]] = {session.charge_path(gang): wanted}
        self.gangs = (gang,)
        self.nominated: tuple[PodRecord, ...] = ()
        self.priority = session.priority(gang)
        self.pod_priority = self.priority


class ReclaimableEstimate:
    """Estimate of reclaimable amounts for one cycle.

    It counts all pods of victim classes that can be evicted. Their nodes are checked only once the gang has pods.
    """

    def __init__(self) -> None:
        self._found: dict[object, dict[AccountRecord | None, dict[str, int]]] = {}

    def reclaimable_amounts(
        self, session: Session, gang: GangRecord, account: AccountRecord | None = None
    ) -> Mapping[str, int]:
        """Return resource -> amount of possible victims of the gang, in one account or in all."""
        options = session.plugin_runtime.policy.eviction
        spec = gang.spec
        if spec is None or not (options.preempt or options.reclaim):
            return {}
        preemptor = AnnouncedPreemptor(session, gang)
        key = (spec.min_resources, preemptor.priority, *preemptor.charge_paths)
        sums = self._found.get(key)
        if sums is None:
            sums = self._found[key] = _sums(session, preemptor)
        return sums.get(account, {})


def _sums(session: Session, preemptor: AnnouncedPreemptor) -> dict[AccountRecord | None, dict[str, int]]:
    options = session.plugin_runtime.policy.eviction
    reclaimees = Reclaimees(session, preemptor, options, announced=True)
    counts = np.bincount(reclaimees.table.kinds, weights=reclaimees.table.counts, minlength=len(reclaimees.classes))
    sums: dict[AccountRecord | None, dict[str, int]] = {None: {}}
    for number in np.flatnonzero(counts * reclaimees.allowed).tolist():
        kind, count = reclaimees.classes[number], int(counts[number])
        for account in (None, *kind.charge_path.path):
            add_amounts(sums.setdefault(account, {}), kind.footprint.amounts, count)
    return sums
