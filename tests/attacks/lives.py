"""A gang through several runs of its scheduler: stored objects, the intake, planning, and the fields that
bindings write.
"""

from __future__ import annotations

import functools
from copy import deepcopy
from typing import Any

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.dialects.core import decode_node
from phalanx.dialects.gangs.plan_marks import PLAN_ANNOTATION, encode_mark
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.signatures import Signer
from phalanx.model.decisions import Bind
from phalanx.model.events import ClusterEvent
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler, never
from tests.dialects.objects import (
    EPOCH,
    KUBE_BATCH,
    NATIVE,
    SIGS,
    VOLCANO,
    X_K8S,
    container,
    decode,
    group,
    pod_document,
)

MATCH_POLICY = "gang.scheduling.koordinator.sh/match-policy"
SIZE = 3
_SIGS = "pod-group.scheduling.sigs.k8s.io"

# Per dialect: the fields that make a pod a member, and the object that declares the gang, if it needs one.
MEMBERS: dict[str, dict[str, Any]] = {
    "native": {"schedulingGroup": {"podGroupName": "g"}},
    "own annotations": {"annotations": {"phalanx.dev/pod-group": "g", "phalanx.dev/min-count": "3"}},
    "x-k8s object": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
    "sigs object": {"labels": {_SIGS: "g"}},
    "sigs labels": {"labels": {f"{_SIGS}/name": "g", f"{_SIGS}/min-available": "3"}},
    "lightweight labels": {"labels": {"pod-group/name": "g", "pod-group/min-available": "3"}},
    "koordinator annotations": {
        "annotations": {
            "gang.scheduling.koordinator.sh/name": "g",
            "gang.scheduling.koordinator.sh/min-available": "3",
        }
    },
    "volcano object": {"annotations": {"scheduling.k8s.io/group-name": "g"}},
    "kube-batch object": {"annotations": {"scheduling.k8s.io/group-name": "g"}},
}
OBJECTS: dict[str, tuple[ServedKind, dict[str, Any]]] = {
    "native": (NATIVE, {"schedulingPolicy": {"gang": {"minCount": 3}}}),
    "x-k8s object": (X_K8S, {"minMember": 3}),
    "sigs object": (SIGS, {"minMember": 3}),
    "volcano object": (VOLCANO, {"minMember": 3}),
    "kube-batch object": (KUBE_BATCH, {"minMember": 3}),
}
POLICIES = ["", "only-waiting", "waiting-and-running", "waiting-running-succeed", "once-satisfied", "of-our-own"]


@functools.cache
def _rules() -> Policy:
    return load_policy()


class Life:
    """One gang of three, of one dialect and match policy ("" for the dialect's own), on one node.

    `stored` is the content of the API server. Every step lets the scheduler work until it is idle; `cut` kills
    it after that many written bindings of a plan.
    """

    def __init__(self, dialect: str, policy: str) -> None:
        self.dialect, self.policy = dialect, policy
        self.signer = Signer((("1", b"k" * 32),))
        self.stored: dict[str, dict[str, Any]] = {}
        self.object: dict[str, Any] | None = None
        self.now, self.uids, self.cut = EPOCH + 100, 0, 0
        self.cpus = SIZE
        self.declare()
        self.restart()

    # Stored objects

    def declare(self) -> None:
        """Create the gang's object anew."""
        if self.dialect in OBJECTS:
            _, spec = OBJECTS[self.dialect]
            notes = {MATCH_POLICY: self.policy} if self.policy else {}
            self.uids += 1
            self.object = group("g", uid=f"group-{self.uids}", annotations=notes, created=self.now, **spec)

    def member(self, name: str, run: int) -> dict[str, Any]:
        """Return a member as the controller of this run creates it."""
        details: dict[str, Any] = {key: dict(value) for key, value in MEMBERS[self.dialect].items()}
        if self.policy:
            details.setdefault("annotations", {})[MATCH_POLICY] = self.policy
        self.uids += 1
        return pod_document(
            name,
            uid=f"{name}-{self.uids}",
            created=self.now,
            owner=f"job-{run}",
            containers=[container(cpu=1)],
            **details,
        )

    def room(self, cpus: int) -> None:
        self.cpus = cpus
        self._take_node()
        self.work()

    # Events

    def make(self, *documents: dict[str, Any]) -> None:
        for document in documents:
            self.stored[document["metadata"]["uid"]] = document
            self._apply(self.intake.pod(decode(document)))
        self.work()

    def copy(self, document: dict[str, Any], name: str = "") -> dict[str, Any]:
        """Return a pod as a backup restores it: a new uid and no node, all other fields unchanged."""
        self.uids += 1
        made = deepcopy(document)
        made["metadata"] |= {"uid": f"copy-{self.uids}", "name": name or made["metadata"]["name"]}
        made["spec"].pop("nodeName", None)
        made["status"] = {"phase": "Pending"}
        return made

    def terminate(self, uid: str) -> None:
        self.stored[uid]["metadata"]["deletionTimestamp"] = "2030-03-17T17:46:40Z"
        self.make(self.stored[uid])

    def succeed(self, uid: str) -> None:
        self.stored[uid]["status"]["phase"] = "Succeeded"
        self.make(self.stored[uid])

    def remove(self, uid: str) -> None:
        metadata = self.stored.pop(uid)["metadata"]
        self._apply(self.intake.pod_removed("default", metadata["name"], uid))
        self.work()

    def restart(self) -> None:
        """Start a new process: everything that was only in memory is lost."""
        self.intake = Intake(["phalanx"], DialectOptions(), self.signer)
        self.state = ClusterState()
        self.scheduler = Scheduler(self.state, _rules())
        self._take_node()
        if self.object is not None:
            self._apply(self.intake.group(OBJECTS[self.dialect][0], self.object))
        for document in list(self.stored.values()):
            self._apply(self.intake.pod(decode(document)))
        self.work()

    def work(self) -> None:
        self.now += 1
        for _ in range(20):
            if self.scheduler.idle:
                return
            plan = self.scheduler.cycle(self.now, never)
            binds = plan.binds
            if self.cut and len(binds) > self.cut:
                binds, self.cut = binds[: self.cut], 0
                for bind in binds:
                    self._write(bind)
                self.restart()
                return
            for bind in binds:
                self._write(bind)
                self._apply(self.intake.pod(decode(self.stored[bind.uid])))
        raise AssertionError("the scheduler does not come to rest")

    # Results

    def uids_of(self, run: int) -> list[str]:
        return [
            uid
            for uid, document in self.stored.items()
            if document["metadata"]["ownerReferences"][0]["name"] == f"job-{run}"
        ]

    def bound(self, run: int) -> int:
        """Return the number of members of a run with a node."""
        return sum("nodeName" in self.stored[uid]["spec"] for uid in self.uids_of(run))

    def _write(self, bind: Bind) -> None:
        document = self.stored[bind.uid]
        document["spec"]["nodeName"] = bind.node
        document["status"]["phase"] = "Running"
        if bind.mark is not None and bind.gang is not None:
            notes = document["metadata"].setdefault("annotations", {})
            notes[PLAN_ANNOTATION] = encode_mark(bind.mark, self.signer, bind.uid, bind.gang)

    def _take_node(self) -> None:
        status = {"allocatable": {"cpu": str(self.cpus), "pods": "99"}}
        self._apply(
            self.intake.node(decode_node(msgspec.json.encode({"metadata": {"name": "n"}, "status": status})))
        )

    def _apply(self, events: list[ClusterEvent]) -> None:
        for event in events:
            self.state.apply(event)
        if hasattr(self, "scheduler"):
            self.scheduler.observe(self.now)
