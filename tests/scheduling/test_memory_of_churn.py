"""Gangs that are created, bound, run and deleted leave nothing behind in intake, state and scheduler."""

from __future__ import annotations

import gc
import json
import types
from collections import deque
from typing import Any

import pytest

from phalanx.cluster import composites
from phalanx.cluster.state import ClusterState
from phalanx.dialects import shared_values
from phalanx.dialects.core import decode_node
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.pods import decoder, pod_reader, traits
from phalanx.dialects.pods.pod_reader import PodReader
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler

GROUP = ServedKind("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
_MEMBERS = 3
_SMALL = 20
_NOT_DATA = (
    types.ModuleType,
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.MethodType,
)


class Churn:
    """Intake, state and scheduler over two nodes, with a reader of pods as the process has it."""

    def __init__(self) -> None:
        self.intake, self.state, self.reader = Intake(["phalanx"]), ClusterState(), PodReader()
        self.scheduler = Scheduler(self.state, load_policy())
        self.now = 1_000_000
        for name in ("node-a", "node-b"):
            amounts = {"cpu": "64", "memory": "64Gi", "pods": "250"}
            status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
            self._apply(
                self.intake.node(decode_node(json.dumps({"metadata": {"name": name}, "status": status}).encode()))
            )

    def run_gang(self, number: int) -> None:
        """Create a gang, bind it, let its pods run and succeed, and delete them with their group."""
        metadata = {"name": f"train-{number}", "namespace": "team", "uid": f"group-{number}"}
        document = {"metadata": metadata, "spec": {"minMember": _MEMBERS}, "status": {"phase": "Pending"}}
        self._apply(self.intake.group(GROUP, document))
        for member in range(_MEMBERS):
            self._see(number, member)
        self.now += 60
        plan = self.scheduler.cycle(now=self.now)
        assert len(plan.binds) == _MEMBERS
        for phase in ("Pending", "Running", "Succeeded"):
            for member, bind in enumerate(plan.binds):
                self._see(number, member, bind.node, phase)
        for member in range(_MEMBERS):
            name = f"train-{number}-{member}"
            self._apply(self.intake.pod_removed("team", name, f"uid-{number}-{member}"))
        self._apply(self.intake.group_removed(GROUP, "team", f"train-{number}"))

    def _see(self, number: int, member: int, node: str = "", phase: str = "Pending") -> None:
        job = f"train-{number}"
        pod: dict[str, Any] = {
            "metadata": {
                "name": f"{job}-{member}",
                "namespace": "team",
                "uid": f"uid-{number}-{member}",
                "labels": {"scheduling.x-k8s.io/pod-group": job, "job-name": job},
                "ownerReferences": [{"kind": "Job", "name": job, "uid": f"job-{number}", "controller": True}],
            },
            "spec": {
                "schedulerName": "phalanx",
                "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
            },
            "status": {"phase": phase},
        }
        if node:
            pod["spec"]["nodeName"] = node
        self._apply(self.intake.pod(self.reader.pod(json.dumps(pod).encode())))

    def _apply(self, events: list[Any]) -> None:
        for event in events:
            self.state.apply(event)
        self.intake.drain_warnings()

    def size(self) -> int:
        """Return the number of objects that are reachable, rings of the last events aside."""
        gc.collect()
        seen: set[int] = set()
        queue: list[Any] = [self.intake, self.state, self.scheduler]
        while queue:
            entry = queue.pop()
            is_ring = isinstance(entry, deque) and entry.maxlen is not None
            if id(entry) in seen or is_ring or isinstance(entry, _NOT_DATA):
                continue
            seen.add(id(entry))
            queue += gc.get_referents(entry)
            if fields := getattr(type(entry), "__struct_fields__", ()):
                queue += [getattr(entry, field) for field in fields]
        return len(seen)


@pytest.mark.feature("admission-lapse")
def test_gangs_that_have_ended_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    # Caches are cleared at these sizes, so that they are full after a few gangs.
    monkeypatch.setattr(composites, "_MOST_CHANGES", _SMALL)
    monkeypatch.setattr(shared_values, "_MOST", _SMALL)
    monkeypatch.setattr(decoder, "_CACHE_SIZE", _SMALL)
    monkeypatch.setattr(pod_reader, "_CACHE_SIZE", 1)
    monkeypatch.setattr(traits, "_MOST", _SMALL)
    churn, sizes = Churn(), list[int]()
    for number in range(120):
        churn.run_gang(number)
        sizes.append(churn.size() if number % 4 == 3 else 0)
    assert not churn.state.pods
    assert not churn.state.gangs
    # One remembered object for each ended gang would add 60.
    assert max(sizes[60:]) < max(sizes[:60]) + 20
