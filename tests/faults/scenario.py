"""A story of a cluster whose end does not depend on the timing of processes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Awaitable
from typing import Any, Self

from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.model.verdict_condition import LAST_VERDICT
from tests.e2e.test_accounts import GROUP, QUEUE, QUEUE_NAME, made
from tests.e2e.test_crashes import GROUPS
from tests.e2e.test_interruptions import GROUPS as GENERATED_GROUPS
from tests.e2e.world import NODES, PODS, Object, World, condition, pod

from .ledger import ENDED

# Most waits end in a fraction of a second; longer ones cover an outage of the API server.
PATIENCE = 40.0
MAIN = 4
KOORDINATOR = "gang.scheduling.koordinator.sh"


class Scenario:
    """A story.

    Every pod requests one CPU, so that only numbers matter and not their nodes. This class plays the
    controllers and the kubelet as well: bound pods run, evicted members are recreated under a new name.
    """

    def __init__(self, world: World, patience: float = PATIENCE) -> None:
        self.world = world
        self._patience = patience
        # Of gangs that name none.
        self.queue = f"{world.name}-base"
        self.prefix = world.name
        self._gangs: dict[str, dict[str, Any]] = {}
        self._wanted: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._actor: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._actor = asyncio.create_task(self._act())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._actor is not None
        self._actor.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._actor

    # the story

    async def play(self, before_the_end: Awaitable[None] | None = None) -> None:
        """Play all acts; `before_the_end` is awaited before the last one, which leaves a gang waiting for room."""
        for act in (self.gangs_of_all_kinds, self.one_borrows, self.some_complete, self.the_owner_comes):
            await act()
        for act in (self.a_node_goes, self.the_node_returns):
            await act()
        if before_the_end is not None:
            await before_the_end
        await self.somebody_more_important_comes()

    async def gangs_of_all_kinds(self) -> None:
        world = self.world
        for number in range(MAIN):
            await world.node(f"n{number}", cpu="4")
        await self._pool_node()
        for name, weight in (("base", 5), ("owner", 3), ("borrower", 1)):
            await world.make(made(QUEUE, f"{self.prefix}-{name}", weight=weight, reclaimable=True))
        await world.make(made(GROUPS, "sigs", minMember=3))
        await self.gang("sigs", 3, labels={"pod-group.scheduling.sigs.k8s.io": "sigs"})
        marks = {f"{KOORDINATOR}/name": "koordinator", f"{KOORDINATOR}/min-available": "2"}
        await self.gang("koordinator", 2, annotations=marks)
        marks = {"pod-group/name": "pool", "pod-group/min-available": "2"}
        tolerations = [{"key": "pool", "operator": "Exists"}]
        await self.gang("pool", 2, labels=marks, nodeSelector={"pool": "x"}, tolerations=tolerations)
        marks = {"pod-group/name": "nowhere", "pod-group/min-available": "2"}
        await self.gang("nowhere", 2, labels=marks, nodeSelector={"pool": "y"})
        await self.until(sigs=3, koordinator=2, pool=2, nowhere=0)
        # A gang that would fit on empty nodes only: its queue requests at least its share at every moment.
        marks = {"pod-group/name": "apart", "pod-group/min-available": "2"}
        term = {
            "labelSelector": {"matchExpressions": [{"key": "story", "operator": "Exists"}]},
            "topologyKey": "kubernetes.io/hostname",
        }
        apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        await self.gang("apart", 2, labels=marks, affinity=apart)
        # Gangs that end soon get none.
        await self._have_groups("koordinator", "pool", "nowhere")

    async def one_borrows(self) -> None:
        await self._volcano("loan", 8, minimum=2, queue="borrower")
        await self.until(loan=8)

    async def some_complete(self) -> None:
        """Three CPUs are free, and the next gang also needs the two of the pods that end."""
        marks = {"pod-group/name": "next", "pod-group/min-available": "5"}
        await self.gang("next", 5, labels=marks)
        names = [name for name, gang in (await self.bound()).items() if gang == "koordinator"]
        self._wanted["koordinator"] = 0
        await self.world.phase("Succeeded", *names)
        await self.until(koordinator=0, next=5)

    async def the_owner_comes(self) -> None:
        """No CPU is free; the loan is reclaimed, but not more: the borrower retains its quorum."""
        await self._volcano("claim", 6, minimum=6, queue="owner")
        await self.until(claim=6, loan=2, sigs=3, next=5)

    async def a_node_goes(self) -> None:
        await self.world.client.delete(NODES.path(None, f"{self.prefix}-x"))
        for name, gang in (await self.bound()).items():
            if gang == "pool":
                await self.world.delete(PODS, name)
        await self.until(pool=0)

    async def the_node_returns(self) -> None:
        await self._pool_node()
        await self.until(pool=2)

    async def somebody_more_important_comes(self) -> None:
        """The smallest gang of its queue is evicted whole; the remaining CPU fits no gang: it is lent again."""
        high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": self.prefix}}
        await self.world.make({**high, "value": 1000})
        marks = {"pod-group/name": "high", "pod-group/min-available": "2"}
        await self.gang("high", 2, labels=marks, priorityClassName=self.prefix)
        await self.until(high=2, sigs=0, next=5, loan=3, claim=6, pool=2)

    # asking

    async def until(self, **wanted: int) -> None:
        """Wait until `counts` members of each gang are bound."""

        async def holds() -> bool:
            found = Counter((await self.bound()).values())
            return all(found[gang] == count for gang, count in wanted.items())

        await self.world.until(holds, f"bound are {wanted}", self._patience)

    async def end(self) -> list[str]:
        """All that a user sees but names, nodes and times: a line for each kind of pod and for each object."""
        pods = Counter(map(_seen, await self.world.list(PODS)))
        lines = [f"{count} of {seen}" for seen, count in sorted(pods.items())]
        for resource in (GROUP, GROUPS, GENERATED_GROUPS, QUEUE):
            for item in await self.world.list(resource):
                name = item["metadata"]["name"]
                if resource.namespaced or name.startswith(self.prefix):
                    lines.append(f"{resource.plural} {name}: {_timeless(item.get('status'))}")
        # Pods are numbered in the order in which they were made, which differs.
        return sorted(re.sub(r"\b([a-z]+)-\d+\b", r"\1", line.replace(self.prefix, "ns")) for line in lines)

    async def _have_groups(self, *names: str) -> None:
        """Waits until gangs that only their pods declare have PodGroups."""

        async def made_for_them() -> bool:
            return {item["metadata"]["name"] for item in await self.world.list(GENERATED_GROUPS)} >= set(names)

        await self.world.until(made_for_them, f"there are PodGroups {names}", self._patience)

    async def parts(self) -> list[str]:
        """Gangs that run in part: at rest there are none."""
        found = Counter((await self.bound()).values())
        return [
            f"{gang} runs with {found[gang]} of {kept['minimum']}"
            for gang, kept in self._gangs.items()
            if 0 < found[gang] < kept["minimum"] and self._wanted[gang]
        ]

    # acting

    async def gang(self, name: str, members: int, minimum: int | None = None, **what: Any) -> None:
        what["labels"] = {**what.get("labels", {}), "story": name}
        what.setdefault("annotations", {}).setdefault(QUEUE_NAME, self.queue)
        self._gangs[name] = {"minimum": minimum or members, "what": what}
        for _ in range(members):
            await self._member(name)
        self._wanted[name] = members

    async def _volcano(self, name: str, members: int, *, minimum: int, queue: str) -> None:
        await self.world.make(made(GROUP, name, minMember=minimum, queue=f"{self.prefix}-{queue}"))
        await self.gang(
            name,
            members,
            minimum,
            annotations={"scheduling.k8s.io/group-name": name, QUEUE_NAME: f"{self.prefix}-{queue}"},
        )

    async def _member(self, gang: str) -> None:
        name = f"{gang}-{next(self._numbers)}"
        await self.world.make(pod(name, namespace=self.prefix, **self._gangs[gang]["what"]))

    async def _pool_node(self) -> None:
        await self.world.node("x", cpu="2")
        taint = {"key": "pool", "value": "x", "effect": "NoSchedule"}
        patch = {"metadata": {"labels": {"pool": "x"}}, "spec": {"taints": [taint]}}
        await self.world.patch_node("x", patch)

    async def bound(self) -> dict[str, str]:
        """pod -> gang, of those that have a node and have not ended."""
        return {
            item["metadata"]["name"]: item["metadata"]["labels"]["story"]
            for item in await self.world.list(PODS)
            if item["spec"].get("nodeName") and not _over(item)
        }

    async def admit(self, item: Object) -> None:
        """Act as a kubelet on a pod bound to its node."""
        await self.world.phase("Running", item["metadata"]["name"])

    async def _act(self) -> None:
        """The kubelet and the job controller."""
        while True:
            with contextlib.suppress(ApiError, ConnectionLost):
                alive, before = Counter[str](), dict(self._wanted)
                for item in await self.world.list(PODS):
                    name, status = item["metadata"]["name"], item.get("status") or {}
                    if item["metadata"].get("deletionTimestamp"):
                        await self.world.delete(PODS, name)
                    elif item["spec"].get("nodeName") and status.get("phase") == "Pending":
                        await self.admit(item)
                    alive[item["metadata"]["labels"]["story"]] += not _over(item)
                for gang, wanted in before.items():
                    for _ in range(min(wanted, self._wanted[gang]) - alive[gang]):
                        await self._member(gang)
            await asyncio.sleep(0.03)


def _over(item: Object) -> bool:
    return (item.get("status") or {}).get("phase") in ENDED or bool(item["metadata"].get("deletionTimestamp"))


def _seen(item: Object) -> tuple[str, ...]:
    status, said = item.get("status") or {}, condition(item, "PodScheduled")
    admitted = condition(item, "phalanx.dev/Admitted")
    if not said and admitted.get("status") == "False":
        # A gated pod has a PodScheduled condition only if it got one before: that depends on timing.
        said = admitted
    return (
        item["metadata"]["labels"]["story"],
        "bound" if item["spec"].get("nodeName") else "waits",
        status.get("phase", ""),
        "nominated" if status.get("nominatedNodeName") else "",
        *(said.get(key, "") for key in ("status", "reason", "message")),
        # A pod marked for eviction and then spared counts as running.
        condition(item, "DisruptionTarget").get("status", "").replace("False", ""),
    )


def _timeless(status: Any) -> Any:
    """Return the events in one order, without times."""
    if isinstance(status, dict):
        return {
            key: _timeless(value)
            for key, value in sorted(status.items())
            if value and not key.endswith(("Time", "transitionID"))
        }
    if isinstance(status, list):
        # Whether a waiting condition was ever published, and with which nodes, depends on timing.
        kept = (
            each
            for each in status
            if each.get("type") != LAST_VERDICT
            and (each.get("type") != "Unschedulable" or each.get("status") != "False")
        )
        return sorted(map(_timeless, kept), key=str)
    return status
