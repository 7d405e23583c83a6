"""Koordinator's profiles: a quota tree over the nodes of a pool."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.dialects.core import NodeObject, decode_node
from phalanx.dialects.intake import Intake
from phalanx.model.account import Account, AccountKey, EvictionRate, Tree
from phalanx.model.events import AccountRemoved, AccountUpdated, ClusterEvent
from tests.dialects.objects import EPOCH, PROFILE, SIGS_QUOTA, group, quota

KO = "quota.scheduling.koordinator.sh/"
GPU_POOL = {"matchLabels": {"pool": "gpu"}}
ROOT = AccountKey(Tree.KOORDINATOR, "gpus", "gpu-tree")


def node(name: str, cpu: int = 8, memory: str = "16Gi", **labels: str) -> NodeObject:
    allocatable = {"cpu": str(cpu), "memory": memory, "nvidia.com/gpu": "4"}
    document = {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}
    return decode_node(msgspec.json.encode(document))


def profile(labels: dict[str, str] | None = None, **details: Any) -> dict[str, Any]:
    details.setdefault("quotaName", "gpus")
    details.setdefault("nodeSelector", GPU_POOL)
    return group("profile", namespace="kube-system", labels=labels or {KO + "tree-id": "gpu-tree"}, **details)


def gpus(events: list[ClusterEvent]) -> Account:
    (found,) = [e.account for e in events if isinstance(e, AccountUpdated) and e.account.key.name == "gpus"]
    return found


def test_profile_is_the_root_of_a_tree_with_the_total_of_its_nodes() -> None:
    door = Intake(["phalanx"])
    door.node(node("a", pool="gpu"))
    door.node(node("b", cpu=2, memory="1Gi", pool="gpu"))
    door.node(node("other", pool="cpu"))
    account = gpus(door.account(PROFILE, profile()))
    assert account.key == ROOT
    assert account.parent == AccountKey(Tree.KOORDINATOR, "koordinator-root-quota", "gpu-tree")
    assert account.total == (("cpu", 10_000), ("memory", 17 * 2**30), ("nvidia.com/gpu", 8))
    assert account.deserved == (("cpu", 10_000), ("memory", 17 * 2**30))
    assert (account.capability, account.label) == ((), "ElasticQuotaProfile kube-system/profile")


def test_profile_can_limit_the_eviction_of_pods() -> None:
    limits = {"phalanx.dev/min-run-time": "5m", "phalanx.dev/eviction-rate": "2/1h"}
    account = gpus(Intake(["phalanx"]).account(PROFILE, profile(annotations=limits)))
    assert (account.min_run_time, account.eviction_rate) == (300, EvictionRate(2, 3600))


def test_total_of_a_profile_follows_its_nodes() -> None:
    door = Intake(["phalanx"])
    assert gpus(door.account(PROFILE, profile())).total == ()
    assert dict(gpus(door.node(node("a", pool="gpu"))).total or ())["cpu"] == 8000
    assert dict(gpus(door.node(node("a", cpu=6, pool="gpu"))).total or ())["cpu"] == 6000
    assert not [event for event in door.node(node("b", pool="cpu")) if isinstance(event, AccountUpdated)]
    assert dict(gpus(door.node(node("b", pool="gpu"))).total or ())["cpu"] == 14_000
    assert dict(gpus(door.node(node("b", pool="cpu"))).total or ())["cpu"] == 6000
    assert gpus(door.node_removed("a")).total == ()


def test_ratio_keys_and_labels_of_the_quota_are_read() -> None:
    door = Intake(["phalanx"])
    door.node(node("a", cpu=3, pool="gpu"))
    details = profile(
        resourceRatio="0.9",
        quotaLabels={KO + "is-parent": "true", KO + "parent": "org"},
        annotations={KO + "resource-keys": '["nvidia.com/gpu", "example.com/fpga"]'},
    )
    account = gpus(door.account(PROFILE, details))
    assert dict(account.total or ())["cpu"] == 2700
    assert account.deserved == (("example.com/fpga", 0), ("nvidia.com/gpu", 3))
    assert (account.parental, account.parent) == (True, AccountKey(Tree.KOORDINATOR, "org", "gpu-tree"))


def test_tree_without_a_label_is_named_by_koordinators_hash() -> None:
    door = Intake(["phalanx"])
    first = gpus(door.account(PROFILE, profile(labels={"a": "b"}))).key.forest
    # FNV-1a, 64 bits, of "kube-system/profile".
    value = 14695981039346656037
    for byte in b"kube-system/profile":
        value = ((value ^ byte) * 1099511628211) % 2**64
    assert first == str(value)


def test_declared_quota_takes_precedence_over_the_profile() -> None:
    door = Intake(["phalanx"])
    door.account(PROFILE, profile())
    written = quota("gpus", "kube-system", created=EPOCH + 9, labels={KO + "tree-id": "gpu-tree"}, min={"cpu": 1})
    assert gpus(door.account(SIGS_QUOTA, written)).deserved == (("cpu", 1000),)
    assert door.drain_warnings() == []
    assert gpus(door.account_removed(SIGS_QUOTA, "kube-system", "gpus")).total == ()
    assert AccountRemoved(ROOT) in door.account_removed(PROFILE, "kube-system", "profile")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"quotaName": ""}, "spec.quotaName"),
        ({"nodeSelector": None}, "spec.nodeSelector"),
        ({"nodeSelector": {"matchLabels": "x"}}, "spec.nodeSelector"),
        ({"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, "spec.nodeSelector"),
    ],
    ids=str,
)
def test_unreadable_profile_has_no_total_and_is_reported(spec: dict[str, Any], field: str) -> None:
    door = Intake(["phalanx"])
    assert door.account(PROFILE, profile(**spec)) == []
    (notice,) = door.drain_warnings()
    assert (notice.reason, field in notice.message) == ("InvalidElasticQuotaProfile", True)


@pytest.mark.parametrize("ratio", ["0", "1.1", "x", "1e9", 2, None, "9" * 40])
def test_invalid_ratio_is_1(ratio: Any) -> None:
    door = Intake(["phalanx"])
    door.node(node("a", pool="gpu"))
    assert dict(gpus(door.account(PROFILE, profile(resourceRatio=ratio))).total or ())["cpu"] == 8000
    assert len(door.drain_warnings()) == (ratio is not None)


_moves = st.tuples(st.sampled_from("abc"), st.sampled_from(["gpu", "cpu", "gone"]), st.integers(1, 9))


@given(st.lists(_moves, max_size=12), st.integers(0, 12))
def test_total_of_a_profile_does_not_depend_on_the_order(moves: list[tuple[str, str, int]], at: int) -> None:
    door, final = Intake(["phalanx"]), Intake(["phalanx"])
    known: Account | None = None
    last: dict[str, tuple[str, int]] = {}

    def learn(events: list[ClusterEvent]) -> None:
        nonlocal known
        for event in events:
            if isinstance(event, AccountUpdated) and event.account.key.name == "gpus":
                known = event.account

    for number, (name, pool, cpu) in enumerate(moves):
        if number == at:
            learn(door.account(PROFILE, profile()))
        last[name] = (pool, cpu)
        learn(door.node_removed(name) if pool == "gone" else door.node(node(name, cpu=cpu, pool=pool)))
    learn(door.account(PROFILE, profile()))
    for name, (pool, cpu) in last.items():
        if pool != "gone":
            final.node(node(name, cpu=cpu, pool=pool))
    assert known == gpus(final.account(PROFILE, profile()))
