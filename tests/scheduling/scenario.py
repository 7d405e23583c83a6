"""The language of `phalanx.testing`, with the audits of these tests and their own words.

After every step the cluster state is recounted from scratch; `observe_together` has the one exception.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

import msgspec

from phalanx.model.account import AccountKey, Tree
from phalanx.model.decisions import Plan
from phalanx.model.events import ClusterEvent, PodUpdated
from phalanx.model.gang import ExpectedMembers, GangKey
from phalanx.model.pod import PodPhase
from phalanx.scheduling.scheduler import never
from phalanx.scheduling.session.victim_class_arrays import VictimClassArrays
from phalanx.testing import NAMESPACE, ClusterScenario, amounts, limits

from ..cluster.audit import audit

__all__ = ["NAMESPACE", "PACKING", "Scenario", "amounts", "key", "limits"]

MOST_AUDITED = 100

KIND_COLUMNS = (
    *("priority", "pod_priority", "other_scheduler", "daemon_or_static"),
    *("non_preemptible", "arriving", "self_protected", "limited"),
)

PACKING = """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: overcommit}, {name: predicates}, {name: binpack}]}]
"""


def key(name: str) -> GangKey:
    return GangKey(NAMESPACE, name)


class Scenario(ClusterScenario):
    """One audited cluster and its scheduler. Names serve as uids; everything lives in one namespace."""

    def __init__(self, policy: str | None = None) -> None:
        super().__init__(policy, audit=audit)
        self.recreates = False
        self._heirs = 0

    def elastic_quota(self, namespace: str, min: dict[str, object], max: dict[str, object]) -> Self:
        key = AccountKey(Tree.ELASTIC_QUOTA, namespace)
        return self.account(key, label=f"ElasticQuota {namespace}/quota", deserved=min, capability=max)

    def expects(self, gang: str, count: int, *, seconds: int = 300, **fields: object) -> Self:
        """Announce expected members of a gang; `expected-0` ... represent them until their pods exist."""
        record = self.state.gangs[self._key(gang)]
        assert record.spec is not None
        self.gang(gang, record.spec.min_member, expected=ExpectedMembers(count, (), seconds))
        for number in range(count):
            name = f"{gang}-expected-{number}"
            self.pod(name, gang=gang, more={"placeholder": True, "index": number}, **fields)  # type: ignore[arg-type]
        return self

    def observe_together(self, events: Sequence[tuple[str, ClusterEvent]]) -> Self:
        """Observe events of one cause. Audit the state after each event; after the last only if there are many
        events, because thousands of audits of thousands of pods find no more.
        """
        if not events:
            return self
        *former, last = events
        for about, event in former:
            if len(events) > MOST_AUDITED:
                self._observed[about] = event
                self.state.apply(event)
            else:
                self.observe(about, event)
        return self.observe(*last)

    def cycle(self, should_stop: Callable[[], bool] = never) -> Plan:
        """Run one cycle, and check its state and its decisions."""
        plan = super().cycle(should_stop)
        self._kinds_are_as_if_counted_anew()
        self._nothing_exceeds_its_node(plan)
        return plan

    def depart(self, *names: str) -> Self:
        """Remove evicted pods (these, or all). With `recreates` their controllers create replacements."""
        for uid, record in list(self.state.pods.items()):
            if uid in names or (record.evicting and not names):
                self.gone(uid)
                if self.recreates:
                    fresh = {
                        "node": "",
                        "phase": PodPhase.PENDING,
                        "terminating": False,
                        "mark": None,
                        "created": self.now,
                    }
                    self._heirs += 1
                    name = f"{uid.partition('~')[0]}~{self._heirs}"
                    pod = msgspec.structs.replace(record.pod, name=name, uid=name, nominated_node="", **fresh)
                    self.observe(f"pod {name}", PodUpdated(pod))
        return self

    def observed_again(self) -> Scenario:
        """Return another scenario with its own scheduler that has observed the same objects."""
        again = Scenario()
        again.policy, again.now, again.namespace = self.policy, self.now, self.namespace
        again._observed = dict(self._observed)
        return again.restart()

    def content(self, gang: str) -> bool:
        """Return whether the gang is satisfied and its verdict says so."""
        return gang in self._gang_verdicts and self._gang_verdicts[gang] is None

    def said(self, gang: str) -> bool:
        return gang in self._gang_verdicts

    def held(self) -> dict[str, str]:
        """Return the node on which room is claimed, by pod."""
        return {uid: r.nominated_node for uid, r in sorted(self.state.pods.items()) if r.nomination is not None}

    def _kinds_are_as_if_counted_anew(self) -> None:
        """Return the state of pod classes that persists between cycles."""
        self.state.victim_table()
        kept, new = self.scheduler.cycle_history.victim_classes(self.state), VictimClassArrays(self.state)
        charge_paths = [[each.charge_paths[place] for place in each.charge_path.tolist()] for each in (kept, new)]
        assert charge_paths[0] == charge_paths[1]
        for name in KIND_COLUMNS:
            assert getattr(kept, name).tolist() == getattr(new, name).tolist(), name

    def _nothing_exceeds_its_node(self, plan: Plan) -> None:
        nodes = self.state.nodes
        for bind in plan.binds:
            row, cls = nodes.row(bind.node), self.state.pods[bind.uid].pod_class
            left = nodes.allocatable[cls.columns, row] - nodes.used[cls.columns, row]
            assert (left >= 0).all(), f"{bind.name} does not fit on {bind.node}"
