"""Hostile objects are created, changed and deleted in any order: nothing raises, accounts stay exact, and a
valid pod is served.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phalanx.cluster.state import ClusterState
from phalanx.dialects.core import (
    decode_namespace,
    decode_node,
    decode_pod,
    decode_priority_class,
    decode_resource_quota,
)
from phalanx.dialects.intake import Intake
from phalanx.dialects.reader import decode_object
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler
from tests.dialects.objects import ACCOUNT_KINDS

from ..cluster.audit import audit
from .hostile import ENRICHED, NAMES, NAMESPACE, SPECS, custom, mutated, node, notes, pod, value

POLICY = """
actions: "enqueue, allocate, preempt, reclaim, gangpreempt, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}, {name: pdb}]
- plugins: [{name: overcommit}, {name: drf}, {name: predicates}, {name: capacity}, {name: nodeorder}]
- plugins: [{name: binpack}, {name: deviceshare}, {name: network-topology-aware}, {name: numa-aware}]
- plugins: [{name: resourcequota}, {name: sla}]
"""
SEEDS = Path(__file__).parent / "corpus" / "round.txt"
BATCH = 25


class World:
    """One scheduler, and a bystander that needs a little room each time."""

    def __init__(self) -> None:
        self.intake = Intake(["phalanx"])
        self.state = ClusterState()
        self.scheduler = Scheduler(self.state, load_policy(POLICY))
        self.bystanders = 0
        status = {"allocatable": {"cpu": "10k", "memory": "100Ti", "pods": "100k"}}
        self.feed(
            self.intake.node, decode_node, {"metadata": {"name": "good", "labels": {"own": "1"}}, "status": status}
        )

    def feed(self, take: Callable[[Any], list[Any]], decode: Callable[[bytes], Any], document: Any) -> None:
        try:
            read = decode(msgspec.json.encode(document))
        except msgspec.DecodeError:
            return
        self.apply(take(read))

    def apply(self, events: list[Any]) -> None:
        for event in events:
            self.state.apply(event)

    def hostile(self, rng: Random) -> None:
        intake, kind = self.intake, rng.randrange(12)
        if kind < 4:
            self.pod(rng)
        elif kind == 4:
            self.feed(intake.node, decode_node, mutated(rng, node(rng)))
            if rng.random() < 0.2:
                self.apply(intake.node_removed(rng.choice(("n1", "n2"))))
        elif kind == 5:
            self.core(rng)
        elif kind < 9:
            served, spec = rng.choice(list(SPECS.items()))
            accounts = {each.plural for each in ACCOUNT_KINDS}
            document = mutated(rng, custom(rng, served, spec))
            known = served.plural in accounts
            self.object(
                rng,
                document,
                lambda read: intake.account(served, read) if known else intake.group(served, read),
                lambda namespace, name: (
                    intake.account_removed(served, namespace, name)
                    if known
                    else intake.group_removed(served, namespace, name)
                ),
            )
        else:
            wanted = rng.choice(intake.enrichers.kinds)
            served = wanted.served_as(wanted.versions[0])
            document = mutated(rng, custom(rng, served, ENRICHED.get(served.kind, {})))
            self.object(
                rng,
                document,
                lambda read: intake.apply(intake.enrichers.updated(served, read)),
                lambda namespace, name: intake.apply(intake.enrichers.removed(served, namespace, name)),
            )

    def pod(self, rng: Random) -> None:
        document = mutated(rng, pod(rng))
        if isinstance(document.get("metadata"), dict):
            # The API server forbids changes of an object's identity.
            name = rng.choice(NAMES)
            document["metadata"] |= {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"}
        self.feed(self.intake.pod, decode_pod, document)
        name = document["metadata"].get("name") if isinstance(document.get("metadata"), dict) else "a"
        if not isinstance(name, str):
            return
        if rng.random() < 0.2:
            raw = msgspec.json.encode(document)
            self.apply(
                self.intake.malformed_pod(NAMESPACE, name, f"uid-{name}", "it is no JSON", raw[: len(raw) // 2])
            )
        if rng.random() < 0.3:
            self.apply(self.intake.pod_removed(NAMESPACE, name, f"uid-{name}"))

    def core(self, rng: Random) -> None:
        intake = self.intake
        labels = {"labels": notes(rng, 2), "annotations": notes(rng)}
        metadata = {"name": NAMESPACE, "namespace": NAMESPACE, "uid": "u", **labels}
        match rng.randrange(4):
            case 0:
                self.feed(intake.namespace, decode_namespace, mutated(rng, {"metadata": metadata}, 1))
                self.apply(intake.namespace_removed(NAMESPACE) if rng.random() < 0.3 else [])
            case 1:
                spec = {
                    "hard": {"cpu": "1k", "requests.cpu": "1k", "volcano.sh/namespace.weight": "2", "pods": "1k"}
                }
                quota = {"metadata": metadata, "spec": spec, "status": {"used": {"cpu": "1"}}}
                self.feed(intake.resource_quota, decode_resource_quota, mutated(rng, quota))
                self.apply(intake.resource_quota_removed(NAMESPACE, NAMESPACE) if rng.random() < 0.3 else [])
            case 2:
                entry = {"metadata": {**metadata, "name": "high"}, "value": 100}
                self.feed(intake.priority_class, decode_priority_class, mutated(rng, entry))
                self.apply(intake.priority_class_removed("high") if rng.random() < 0.3 else [])
            case _:
                budget = {
                    "metadata": metadata,
                    "spec": {"selector": {"matchLabels": {"app": "x"}}, "minAvailable": "50%"},
                    "status": {"disruptionsAllowed": 1, "observedGeneration": 1, "disruptedPods": {"a": "2026"}},
                }
                self.object(rng, mutated(rng, budget), intake.disruption_budget, intake.disruption_budget_removed)

    def object(
        self,
        rng: Random,
        document: Any,
        take: Callable[[Any], list[Any]],
        removed: Callable[[str, str], list[Any]],
    ) -> None:
        self.feed(take, decode_object, document)
        metadata = document.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if isinstance(name, str) and rng.random() < 0.3:
            self.apply(removed(NAMESPACE, name))

    def settle(self, now: float) -> None:
        """A bystander comes, the scheduler plans, and everything is counted again."""
        self.bystanders += 1
        uid = f"uid-by{self.bystanders}"
        spec = {"schedulerName": "phalanx", "nodeSelector": {"own": "1"}, "containers": [{"name": "main"}]}
        document = {"metadata": {"name": uid[4:], "namespace": "bystanders", "uid": uid}, "spec": spec}
        self.feed(self.intake.pod, decode_pod, document)
        bound: set[str] = set()
        for _ in range(12):
            plan = self.scheduler.cycle(now)
            assert plan.failures == [], plan.failures[0].trace
            bound |= {bind.uid for bind in plan.binds}
            if self.scheduler.idle:
                break
        assert uid in bound
        self.intake.drain_warnings()
        audit(self.state)
        assert list(self.state.ledger.discrepancies(self.state.pods.values())) == []
        self.apply(self.intake.pod_removed("bystanders", uid[4:], uid))


def play(seed: int, batches: int = 1) -> None:
    rng, world = Random(seed), World()
    for batch in range(batches):
        for _ in range(BATCH):
            world.hostile(rng)
        world.settle(1_900_000_000.0 + batch)


@pytest.mark.parametrize(
    "seed", [int(line.split()[0]) for line in SEEDS.read_text("utf-8").splitlines() if line[:1].isdigit()]
)
def test_past_failures_of_rounds_pass(seed: int) -> None:
    play(seed, 4)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**48))
def test_hostile_objects_do_not_disturb_the_bystander(seed: int) -> None:
    play(seed, 4)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_hostile_objects() -> None:
    start = int(os.environ.get("PHALANX_FUZZ_SEED", "20261122"))
    for seed in range(start, start + 100_000 // (BATCH * 20)):
        play(seed, 20)


def test_generator_produces_hostile_objects() -> None:
    """The generator reaches its targets: annotations that are read, and values beyond all limits."""
    rng = Random(1)
    written = [msgspec.json.encode(mutated(rng, pod(rng))) for _ in range(400)]
    for part in (b"koordinator.sh/", b"volcano.sh/", b"phalanx.dev/", b"[" * 1000, b"9" * 5000):
        assert any(part in raw for raw in written), part
    assert len({repr(value(rng))[:50] for _ in range(500)}) > 60
