"""Kinds of pods as arrays, so that a question about all of them is a few comparisons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phalanx.cluster.accounts import ChargePath
from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.pods.victim_index import VictimClass, VictimTable
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.model.account import Tree
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.session.session import Session

_QUOTAS = (Tree.ELASTIC_QUOTA, Tree.KOORDINATOR, Tree.ACK)


class VictimClassArrays:
    """int64[K] each: `payer` (a place in `payers`), `priority` (`Session.victim_priority`), `pod_priority`; and
    `foreign` (of other schedulers), `daemon_or_static` (belongs to its node), `non_preemptible` (marked so, pod by
    pod), `self_protected` (they, their gangs or their quotas are), `limited` (a cooldown or a disruption budget may
    count), `arriving`, all bool[K]. `lowest_priority` is kept for `no_lower_priority`. Valid for one session, for
    priorities' sake; kinds that come up in it are added.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kinds: Sequence[VictimClass] = session.state.victims.kinds
        self._generation = session.state.victims.generation
        self.payers: list[ChargePath] = []
        self.gangs: dict[GangRecord, list[int]] = {}
        self._places: dict[ChargePath, int] = {}
        self._rows: list[tuple[int, int, int, bool, bool, bool, bool, bool, bool]] = []
        self._seen = -1
        self.lowest_priority: tuple[VictimTable, LowestPriority] | None = None
        self._update()

    def current(self) -> bool:
        """Whether it still speaks of the kinds that there are; those that are new are added."""
        if self._generation != self._session.state.victims.generation:
            return False
        if self._seen != len(self._kinds):
            self._update()
        return True

    def _update(self) -> None:
        priority = self._session.victim_priority
        for kind in self._kinds[len(self._rows) :]:
            place = self._places.setdefault(kind.payer, len(self.payers))
            if place == len(self.payers):
                self.payers.append(kind.payer)
            gang = kind.gang
            if gang is not None:
                self.gangs.setdefault(gang, []).append(kind.number)
            self._rows.append(
                (
                    place,
                    priority(gang, kind.priority),
                    kind.priority,
                    not kind.payer.key.queue,
                    kind.fixture,
                    not kind.preemptable,
                    kind.arriving,
                    not kind.preemptable or kind.payer.key.firm or _forbids(gang),
                    kind.guarded,
                )
            )
        self._seen = len(self._kinds)
        table = np.array(self._rows, dtype=np.int64).reshape(-1, 9)
        self.payer: IntArray = table[:, 0].copy()
        self.priority: IntArray = table[:, 1].copy()
        self.pod_priority: IntArray = table[:, 2].copy()
        self.foreign: BoolArray = table[:, 3] > 0
        self.daemon_or_static: BoolArray = table[:, 4] > 0
        self.non_preemptible: BoolArray = table[:, 5] > 0
        self.arriving: BoolArray = table[:, 6] > 0
        self.self_protected: BoolArray = table[:, 7] > 0
        self.limited: BoolArray = table[:, 8] > 0


class LowestPriority:
    """Of all pods on nodes: the `lowest` priority, and what queues and quotas there are among them."""

    def __init__(self, classes: VictimClassArrays, table: VictimTable) -> None:
        there = table.pods(len(classes.priority)) > 0
        self.lowest = int(classes.priority[there].min()) if there.any() else None
        payers = [classes.payers[place] for place in np.unique(classes.payer[there]).tolist()]
        self.queues = {payer.queue for payer in payers}
        self.quotas = any(has_quota(payer) for payer in payers)


def victim_class_arrays(session: Session) -> VictimClassArrays:
    """The kinds as arrays, worked out once a session."""
    found = session.victim_classes
    if not isinstance(found, VictimClassArrays) or not found.current():
        found = session.victim_classes = VictimClassArrays(session)
    return found


def _forbids(gang: GangRecord | None) -> bool:
    return gang is not None and gang.spec is not None and not gang.spec.preemptable


def has_quota(payer: ChargePath) -> bool:
    """Whether a quota pays, beside a queue."""
    return any(account.key.tree in _QUOTAS for account in payer.path)


def no_lower_priority(session: Session, unit: QueuedUnit) -> bool:
    """Whether nobody can have to go for a unit: everybody is in its queue and without a quota, where only pods of
    lower priority make room, and there are none. (False proves nothing.)"""
    state = session.state
    if session.pipeline.policy.eviction.levels or state.pods.terminating or state.pods.nominated:
        return False
    if any(gang.counts().active for gang in unit.gangs):  # may find victims among its own
        return False
    table = state.victim_table()
    classes = victim_class_arrays(session)
    if classes.lowest_priority is None or classes.lowest_priority[0] is not table:
        classes.lowest_priority = (table, LowestPriority(classes, table))
    _, lowest = classes.lowest_priority
    if lowest.lowest is None:
        return True
    payers = [session.payer(member) for member in unit.members]
    alike = not lowest.quotas and all({payer.queue} == lowest.queues for payer in payers)
    return (
        alike
        and not any(has_quota(payer) for payer in payers)
        and all(session.priority(each) <= lowest.lowest for each in (*unit.members, *unit.gangs))
    )
