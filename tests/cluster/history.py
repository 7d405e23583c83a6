"""Random histories of a small cluster: all kinds of events, in any order, plausible or not."""

from __future__ import annotations

import random
from collections import defaultdict

import msgspec

from phalanx.cluster.pods.nominations import Nomination
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.account import Account, AccountKey, AccountState, Tree
from phalanx.model.events import (
    AccountRemoved,
    AccountUpdated,
    ClusterEvent,
    GangRemoved,
    GangUpdated,
    NamespaceWeighed,
    NodeRemoved,
    NodeUpdated,
    PodRemoved,
    PodUpdated,
)
from phalanx.model.gang import Gang, GangKey
from phalanx.model.node import Node
from phalanx.model.pod import MemberState, PlanMark, Pod, PodClass, PodPhase
from phalanx.model.resources import requests_of
from phalanx.model.selectors import HostPort, Taint

LEAVING_OR_THERE = (MemberState.ASSUMED, MemberState.BOUND, MemberState.RUNNING, MemberState.TERMINATING)
NODES = ["n0", "n1", "n2"]
UIDS = ["u0", "u1", "u2", "u3", "u4", "u5", "u6"]
GANG_NAMES = ["a", "b", "empty"]
MARKS = [None, PlanMark("p1", 3, 10), PlanMark("p2", 2, 20)]
QUEUES = ["default", "default", "a", "b", "c", "nowhere"]
PORTS = [(), (), (HostPort(80),), (HostPort(80, ip="10.0.0.1"), HostPort(53, "UDP"))]


class History:
    """Driver of one `ClusterState`; `story` records the events for the message of a failed test."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.state = ClusterState()
        self.story: list[str] = []

    def step(self) -> None:
        happening = self.draw.choice(
            [
                self._node_event,
                *(self._new_pod,) * 6,
                self._pod_change,
                self._pod_change,
                self._observed_binding,
                self._observed_binding,
                *(self._pod_gone,) * 4,
                self._gang_event,
                self._account_event,
                *(self._plan,) * 10,
                self._failed_binding,
                self._promise,
                self._eviction,
            ]
        )
        happening()

    def _apply(self, event: ClusterEvent) -> None:
        self.story.append(f"apply {event}")
        self.state.apply(event)

    def _node_event(self) -> None:
        if self.draw.random() < 0.25:
            self._apply(NodeRemoved(self.draw.choice(NODES)))
        else:
            self._apply(NodeUpdated(random_node(self.draw)))

    def _new_pod(self) -> None:
        """Add a pod, if there is room for one; sometimes it replaces another of the same name."""
        missing = [uid for uid in UIDS if uid not in self.state.pods]
        uid = self.draw.choice(missing) if missing and self.draw.random() < 0.8 else ""
        self._apply(PodUpdated(random_pod(self.draw, uid)))

    def _pod_change(self) -> None:
        record = self._some(list(self.state.pods.values()))
        if record is None:
            return
        changes: list[dict[str, object]] = [
            {"phase": self.draw.choice(list(PodPhase))},
            {"terminating": True},
            {"gated": False},
            {"priority": 5},
            {"gang": self.draw.choice(["", "a", "b"])},
            {"role": self.draw.choice(["", "late"])},
            {"nominated_node": self.draw.choice(["", *NODES])},
            {"problem": "odd"},
            {"queue": self.draw.choice(QUEUES)},
            {"quota": self.draw.choice(["", "q1"]), "firm": self.draw.random() < 0.5},
            {"user": self.draw.choice(["", "ada"])},
            {"scheduler": "default-scheduler"},
            {"pod_class": PodClass(host_ports=self.draw.choice(PORTS)), "usage": ()},
        ]
        if record.pod.node:
            changes.append({"usage": (("cpu", 900),)})
        self._apply(PodUpdated(msgspec.structs.replace(record.pod, **self.draw.choice(changes))))

    def _observed_binding(self) -> None:
        """Confirm a binding, mostly on our node; another scheduler can have been faster, and a resize can arrive
        with it.
        """
        waiting = [record for record in self.state.pods.values() if not record.pod.node]
        assumed = [record for record in waiting if record.state is MemberState.ASSUMED]
        record = self._some(assumed if assumed and self.draw.random() < 0.8 else waiting)
        if record is None:
            return
        node = record.assumed_node if record.assumed_node and self.draw.random() < 0.7 else self.draw.choice(NODES)
        usage = record.pod.usage if self.draw.random() < 0.7 else (("cpu", 900),)
        mark = record.mark if self.draw.random() < 0.8 else None
        self._apply(PodUpdated(msgspec.structs.replace(record.pod, node=node, usage=usage, mark=mark)))

    def _pod_gone(self) -> None:
        self._apply(PodRemoved(self.draw.choice(UIDS)))

    def _gang_event(self) -> None:
        gang = random_gang(self.draw)
        match self.draw.choice(["declared", "declared", "gone", "admitted", "admission failed"]):
            case "declared":
                self._apply(GangUpdated(gang))
            case "gone":
                self._apply(GangRemoved(gang.key))
            case "admitted" if gang.key in self.state.gangs:
                self.story.append(f"admit {gang.key}")
                self.state.gangs.admit(gang.key)
            case "admission failed":
                self.story.append(f"admission of {gang.key} fails")
                self.state.gangs.admission_failed(gang.key)

    def _account_event(self) -> None:
        account = random_account(self.draw)
        match self.draw.choice(["declared", "declared", "declared", "gone", "weighed"]):
            case "declared":
                self._apply(AccountUpdated(account))
            case "gone":
                self._apply(AccountRemoved(account.key))
            case "weighed":
                self._apply(NamespaceWeighed("ns", self.draw.randint(1, 3)))

    def _plan(self) -> None:
        """Place some pending pods anywhere, whether they fit or not; commit the plan or roll it back."""
        pending = [record for record in self.state.pods.values() if record.state is MemberState.PENDING]
        rows = self.state.nodes.rows().tolist()
        if not pending or not rows:
            return
        transaction = self.state.transaction()
        transaction.lift(pending)
        tried = self.draw.random() < 0.3
        holding = [record for record in self.state.pods.values() if record.state in LEAVING_OR_THERE]
        if tried:
            transaction.remove(holding)
            transaction.put_back(self.draw.sample(holding, len(holding) // 2))
        for record in self.draw.sample(pending, self.draw.randint(1, len(pending))):
            transaction.place(record.pod_class, [record], [self.draw.choice(rows)])
        if tried or self.draw.random() < 0.2:
            self.story.append("roll a plan back")
            transaction.rollback()
            return
        mark = self.draw.choice(MARKS)
        together = defaultdict[GangKey | str | None, list[tuple[PodRecord, int]]](list)
        for record, row in transaction.commit():
            self.story.append(f"place {record.pod.uid} on row {row} with {mark}")
            everyone = record.gang.key if record.gang is not None else None
            together[record.pod.uid if self.draw.random() < 0.3 else everyone].append((record, row))
        for placed in together.values():
            self.state.pods.assume_all(placed, mark)

    def _promise(self) -> None:
        """Claim room for a pending pod, or release its claim."""
        record = self._some([record for record in self.state.pods.values() if record.state is MemberState.PENDING])
        rows = self.state.nodes.rows().tolist()
        if record is None or not rows:
            return
        if record.nomination is not None and self.draw.random() < 0.5:
            self.story.append(f"unclaim {record.pod.uid}")
            self.state.pods.cancel_nomination(record)
        else:
            row = self.draw.choice(rows)
            self.story.append(f"claim row {row} for {record.pod.uid}")
            self.state.pods.nominate(record, row, Nomination())

    def _eviction(self) -> None:
        """Evict a pod, or let its eviction fail."""
        uid = self.draw.choice(UIDS)
        record = self.state.pods.get(uid)
        if record is not None and record.state in (MemberState.BOUND, MemberState.RUNNING):
            self.story.append(f"doom {uid}")
            self.state.pods.mark_evicting(record)
        else:
            self.story.append(f"spare {uid}")
            self.state.pods.eviction_refused(uid, 100.0)

    def _failed_binding(self) -> None:
        uid = self.draw.choice(UIDS)
        self.story.append(f"forget {uid}")
        self.state.pods.binding_failed(uid)

    def _some(self, records: list[PodRecord]) -> PodRecord | None:
        return self.draw.choice(records) if records else None


def random_node(draw: random.Random, name: str = "") -> Node:
    offered = {
        "cpu": draw.randint(0, 4000),
        "memory": draw.randint(0, 2**33),
        "nvidia.com/gpu": draw.randint(0, 8),
        "pods": draw.randint(0, 10),
        draw.choice(["example.com/fpga", "weird"]): draw.randint(0, 2),
    }
    return Node(
        name or draw.choice(NODES),
        uid=draw.choice(["1", "2"]),
        allocatable=requests_of({key: value for key, value in offered.items() if draw.random() < 0.8}),
        labels=draw.choice([(), (("zone", "a"),), (("disk", "ssd"), ("zone", "b"))]),
        taints=draw.choice([(), (Taint("dedicated", "x"),), (Taint("soft", effect="PreferNoSchedule"),)]),
        unschedulable=draw.random() < 0.2,
    )


def random_pod(draw: random.Random, uid: str = "") -> Pod:
    uid = uid or draw.choice(UIDS)
    requests = draw.choice([(), (("cpu", 500),), (("cpu", 1000), ("nvidia.com/gpu", 2)), (("weird", 3),)])
    node = draw.choice(["", "", "", "", "", *NODES])
    # A pending pod uses the requests of its spec; a pod on a node can have been resized in place.
    resized = draw.choice([None, None, (("cpu", 700),), (("grown", 1),)]) if node else None
    return Pod(
        namespace="ns",
        name=f"pod-{uid}",
        uid=uid,
        pod_class=PodClass(
            requests=requests,
            host_ports=draw.choice(PORTS),
            scored_cpu=draw.choice([100, 500]),
            scored_memory=200,
        ),
        usage=resized or requests,
        scheduler=draw.choice(["phalanx", "phalanx", "phalanx", "default-scheduler"]),
        node=node,
        phase=draw.choice([PodPhase.PENDING] * 6 + list(PodPhase)),
        terminating=draw.random() < 0.1,
        gated=draw.random() < 0.1,
        priority=draw.randint(0, 1),
        gang=draw.choice(["", "a", "a", "b"]),
        role=draw.choice(["", "ps", "worker"]),
        nominated_node=draw.choice(["", "", *NODES]),
        mark=draw.choice(MARKS),
        queue=draw.choice(QUEUES),
        quota=draw.choice(["", "", "q1", "nobody"]),
        user=draw.choice(["", "ada", "bob"]),
        firm=draw.random() < 0.2,
    )


def random_gang(draw: random.Random, name: str = "") -> Gang:
    return Gang(
        GangKey("ns", name or draw.choice(GANG_NAMES)),
        uid=draw.choice(["1", "2"]),
        min_member=draw.randint(1, 4),
        queue=draw.choice(QUEUES),
        admission=draw.random() < 0.5,
        admitted=draw.random() < 0.5,
        min_resources=draw.choice([None, (("cpu", 3000),), (("cpu", 500), ("memory", 2**30))]),
        min_limits=draw.choice([(), (("limits.cpu", 3000),)]),
    )


def random_account(draw: random.Random) -> Account:
    """Declare queues with any parents (cycles and missing ones among them) and quotas of all dialects."""
    tree = draw.choice([Tree.QUEUE, Tree.QUEUE, Tree.ELASTIC_QUOTA, Tree.KOORDINATOR, Tree.ACK])
    if tree is Tree.ELASTIC_QUOTA:
        return Account(AccountKey(tree, "ns"), deserved=(("cpu", 500),), capability=(("cpu", 2000),))
    names = ["a", "b", "c", "default", "root"] if tree is Tree.QUEUE else ["q1", "q2", "koordinator-default-quota"]
    parent = draw.choice([None, None, *names, "missing"])
    return Account(
        AccountKey(tree, draw.choice(names)),
        parent=AccountKey(tree, parent) if parent is not None else None,
        state=draw.choice([AccountState.OPEN, AccountState.OPEN, AccountState.CLOSED]),
        namespaces=("ns",) if draw.random() < 0.3 else (),
        weight=draw.randint(1, 3),
        guarantee=draw.choice([(), (("cpu", 700), ("weird", 1))]),
    )
