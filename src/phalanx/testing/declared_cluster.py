"""A cluster that is declared in a few lines: nodes, accounts, gangs and pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Self

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.events import (
    AccountRemoved,
    AccountUpdated,
    ClusterEvent,
    GangRemoved,
    GangUpdated,
    NodeRemoved,
    NodeUpdated,
    PodRemoved,
    PodUpdated,
)
from phalanx.model.gang import Gang, GangKey
from phalanx.model.node import Node
from phalanx.model.pod import PlanMark, Pod, PodClass, PodPhase
from phalanx.model.selectors import Taint
from phalanx.testing.amounts import amounts, limits, resource_name

NAMESPACE = "ns"
"""The namespace of gangs and pods, unless `within` names another one."""

Audit = Callable[[ClusterState], object]
"""Function that raises an exception if the state of the cluster is inconsistent."""


class DeclaredCluster:
    """The state of a cluster, made of declarations. The names of pods are their uids and unique in the cluster.

    `now` is the time in seconds since the epoch. Each declaration returns the cluster, so that they can be chained;
    to declare an object again changes it. `audit` is called with the state after each change.
    """

    def __init__(self, audit: Audit | None = None) -> None:
        self.now = 1000
        self.namespace = NAMESPACE
        self.state = ClusterState()
        self._audit = audit
        self._observed: dict[str, ClusterEvent] = {}

    # nodes and accounts

    def node(
        self,
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        taints: Iterable[Taint] = (),
        unschedulable: bool = False,
        pods: int = 110,
        **offered: object,
    ) -> Self:
        """Declare a node with the amounts that it offers; 64 CPUs and 256Gi of memory by default."""
        offer = {"cpu": 64, "memory": "256Gi"} | offered
        node = Node(
            name,
            allocatable=amounts(pods=pods, **offer),
            labels=tuple(sorted((labels or {}).items())),
            taints=tuple(taints),
            unschedulable=unschedulable,
        )
        return self.observe(f"node {name}", NodeUpdated(node))

    def nodes(self, count: int, prefix: str = "n", **offered: object) -> Self:
        """Declare `count` equal nodes `n1`, `n2` and so on."""
        for number in range(1, count + 1):
            self.node(f"{prefix}{number}", **offered)  # type: ignore[arg-type]
        return self

    def no_node(self, name: str) -> Self:
        """Remove a node."""
        return self.observe(f"node {name}", NodeRemoved(name))

    def queue(self, name: str, *, parent: str = "", **fields: object) -> Self:
        """Declare a queue; `guarantee`, `deserved` and `capability` are mappings like `{"cpu": 4, "gpu": 1}`."""
        above = AccountKey(Tree.QUEUE, parent) if parent else None
        return self.account(AccountKey(Tree.QUEUE, name), label=f"queue {name}", parent=above, **fields)

    def account(self, key: AccountKey, **fields: object) -> Self:
        """Declare an account of any tree (queue, quota, namespace, user)."""
        for name in ("guarantee", "deserved", "capability", "total"):
            if isinstance(quantities := fields.get(name), dict):
                fields[name] = limits(quantities)
        account = Account(key, **fields)  # type: ignore[arg-type]
        return self.observe(f"account {key}", AccountUpdated(account))

    def no_account(self, key: AccountKey) -> Self:
        """Remove an account."""
        return self.observe(f"account {key}", AccountRemoved(key))

    def used(self, key: AccountKey, resource: str) -> int:
        """Return the amount of a resource that is charged to an account."""
        self.state.ledger.refresh_sums()
        return self.state.ledger.accounts[key].used.get(resource_name(resource), 0)

    # gangs and pods

    def within(self, namespace: str) -> Self:
        """Declare gangs and pods in another namespace from now on."""
        self.namespace = namespace
        return self

    def gang(self, name: str, minimum: int = 1, **fields: object) -> Self:
        """Declare a gang; fields that are left out keep their values."""
        record = self.state.gangs.get(self._key(name))
        spec = record.spec if record is not None and record.spec is not None else Gang(self._key(name))
        if isinstance(mates := fields.get("gang_group"), list):
            fields["gang_group"] = tuple(sorted(GangKey(NAMESPACE, mate) for mate in mates))
        spec = msgspec.structs.replace(spec, min_member=minimum, **fields)
        return self.observe(f"gang {name}", GangUpdated(spec))

    def no_gang(self, name: str) -> Self:
        """Remove the object of a gang."""
        return self.observe(f"gang {name}", GangRemoved(self._key(name)))

    def pod(
        self,
        name: str,
        *,
        gang: str = "",
        role: str = "",
        node: str = "",
        phase: PodPhase | None = None,
        scheduler: str = "phalanx",
        pod_class: PodClass | None = None,
        created: int | None = None,
        terminating: bool = False,
        gated: bool = False,
        priority: int = 0,
        nominated: str = "",
        problem: str = "",
        mark: PlanMark | None = None,
        queue: str = "default",
        quota: str = "",
        user: str = "",
        firm: bool = False,
        more: Mapping[str, object] | None = None,
        **requests: object,
    ) -> Self:
        """Declare a pod; the remaining keywords are its requests. A pod with a node runs unless `phase` differs.

        `pod_class` has the further fields of its spec that restrict nodes, `more` has those of `Pod`.
        """
        asked = amounts(**requests)
        base = pod_class or PodClass()
        base = msgspec.structs.replace(
            base, requests=asked, scored_cpu=dict(asked).get("cpu", 100), scored_memory=200
        )
        pod = Pod(
            self.namespace,
            name,
            name,
            base,
            asked,
            scheduler,
            node=node,
            phase=phase or (PodPhase.RUNNING if node else PodPhase.PENDING),
            terminating=terminating,
            gated=gated,
            priority=priority,
            created=self.now if created is None else created,
            gang=gang,
            role=role,
            nominated_node=nominated,
            mark=mark,
            problem=problem,
            queue=queue,
            quota=quota,
            user=user,
            firm=firm,
            **dict(more or {}),  # type: ignore[arg-type]
        )
        return self.observe(f"pod {name}", PodUpdated(pod))

    def pods(self, prefix: str, count: int, **fields: object) -> Self:
        """Declare `count` equal pods `prefix-0`, `prefix-1` and so on."""
        for number in range(count):
            self.pod(f"{prefix}-{number}", **fields)  # type: ignore[arg-type]
        return self

    def job(
        self, name: str, members: int, minimum: int | None = None, queue: str = "default", **fields: object
    ) -> Self:
        """Declare a gang with equal members `name-0`, `name-1`, …; it needs all of them, or `minimum`."""
        self.gang(name, members if minimum is None else minimum, created=self.now, queue=queue)
        return self.pods(name, members, gang=name, **fields)

    # changes of pods

    def becomes(self, name: str, **change: object) -> Self:
        """Change fields of a pod."""
        return self.observe(f"pod {name}", PodUpdated(msgspec.structs.replace(self._pod(name), **change)))

    def becomes_all(self, prefix: str, **change: object) -> Self:
        """Change fields of all pods whose names begin with `prefix`."""
        for name in [name for name in self.state.pods if name.startswith(prefix)]:
            self.becomes(name, **change)
        return self

    def finishes(self, *names: str, phase: PodPhase = PodPhase.SUCCEEDED) -> Self:
        """End pods with success, or in another phase."""
        for name in names:
            self.becomes(name, phase=phase)
        return self

    def gone(self, *names: str) -> Self:
        """Delete pods."""
        for name in names:
            self.observe(f"pod {name}", PodRemoved(name))
        return self

    # events

    def observe(self, about: str, event: ClusterEvent) -> Self:
        """Apply an event; `about` names its object."""
        self._observed[about] = event
        self.state.apply(event)
        self.audit()
        return self

    @property
    def events(self) -> tuple[ClusterEvent, ...]:
        """The last event of each object, in the order in which the objects appeared."""
        return tuple(self._observed.values())

    def audit(self) -> None:
        """Check the state with the function that the cluster was made with."""
        if self._audit is not None:
            self._audit(self.state)

    def _key(self, name: str) -> GangKey:
        known = (gang.key for gang in self.state.gangs.values() if gang.key.name == name)
        return next(known, GangKey(self.namespace, name))

    def _pod(self, name: str) -> Pod:
        return self.state.pods[name].pod
