"""Order of arrival: the same facts in any order give equal specs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phalanx.dialects.core import decode_namespace, decode_priority_class
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.model.account import Account, AccountKey
from phalanx.model.disruption import DisruptionBudget
from phalanx.model.events import (
    AccountRemoved,
    AccountUpdated,
    ClusterEvent,
    DisruptionBudgetRemoved,
    DisruptionBudgetUpdated,
    GangRemoved,
    GangUpdated,
    NamespaceWeighed,
    PodRemoved,
    PodUpdated,
)
from phalanx.model.gang import Gang, GangKey
from phalanx.model.pod import Pod
from tests.dialects.objects import (
    EPOCH,
    KUBE_BATCH,
    KUBE_BATCH_QUEUE,
    QUOTA,
    QUOTA_TREE,
    SIGS,
    SIGS_QUOTA,
    VOLCANO,
    VOLCANO_QUEUE,
    X_K8S,
    group,
    pod,
)
from tests.extent import examples

Fact = Callable[[Intake], list[ClusterEvent]]
Budgets = dict[tuple[str, str], DisruptionBudget]
Nouns = tuple[dict[str, Pod], dict[GangKey, Gang], dict[AccountKey, Account], dict[str, int], Budgets]

GANGS = ("a", "b", "Bad_Name")
NAME_KEYS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io/name", "pod-group/name")
MIN = "pod-group.scheduling.sigs.k8s.io/min-available"
KO = "quota.scheduling.koordinator.sh/"
ACCOUNTS = (
    *((kind, name, "") for kind in (VOLCANO_QUEUE, KUBE_BATCH_QUEUE) for name in ("a", "b")),
    *((kind, name, "team") for kind in (QUOTA, SIGS_QUOTA) for name in ("a", "b")),
    (SIGS_QUOTA, "a", "other"),
    *((QUOTA_TREE, name, "kube-system") for name in ("a", "b")),
)


@st.composite
def pod_states(draw: st.DrawFn, name: str) -> dict[str, Any]:
    labels = {}
    if draw(st.booleans()):
        labels[draw(st.sampled_from(NAME_KEYS))] = draw(st.sampled_from(GANGS))
    if draw(st.booleans()):
        labels[MIN] = draw(st.sampled_from(["1", "2", "x", "0"]))
    if draw(st.booleans()):
        labels["pod-group.scheduling.sigs.k8s.io/match-policy"] = draw(st.sampled_from(["only-waiting", "odd"]))
    annotations = {}
    if draw(st.booleans()):
        annotations["scheduling.k8s.io/group-name"] = draw(st.sampled_from(GANGS))
    if draw(st.booleans()):
        annotations["gang.scheduling.koordinator.sh/groups"] = draw(st.sampled_from(['["default/b"]', "odd"]))
    if draw(st.booleans()):
        annotations["scheduling.volcano.sh/queue-name"] = draw(st.sampled_from(["a", "default"]))
    if draw(st.booleans()):
        annotations["volcano.sh/preemptable"] = draw(st.sampled_from(["true", "false"]))
    return {
        "name": name,
        "labels": labels,
        "annotations": annotations,
        "created": EPOCH + draw(st.integers(0, 2)),
        "priority": draw(st.sampled_from([0, 5])),
        "phase": draw(st.sampled_from(["Pending", "Running", "Succeeded"])),
        "terminating": draw(st.booleans()),
        "schedulerName": draw(st.sampled_from(["phalanx", "other"])),
    }


@st.composite
def group_states(draw: st.DrawFn) -> dict[str, Any]:
    spec: dict[str, Any] = {"minMember": draw(st.sampled_from([0, 1, 2, -1, "x"]))}
    if draw(st.booleans()):
        spec["priorityClassName"] = draw(st.sampled_from(["high", "low"]))
    if draw(st.booleans()):
        spec["minTaskMember"] = {"ps": draw(st.integers(0, 3))}
    annotations = {}
    if draw(st.booleans()):
        annotations["volcano.sh/revocable-zone"] = draw(st.sampled_from(["*", "rz1"]))
    return {
        **spec,
        "annotations": annotations,
        "status": {"phase": draw(st.sampled_from(["", "Pending", "Inqueue"]))},
    }


@st.composite
def account_states(draw: st.DrawFn) -> dict[str, Any]:
    """Texts for queues and quotas: each kind uses the parts that apply to it."""
    annotations = {}
    if draw(st.booleans()):
        annotations[KO + "namespaces"] = draw(st.sampled_from(['["x"]', '["x", "y"]', "odd"]))
    labels = {}
    if draw(st.booleans()):
        labels[KO + draw(st.sampled_from(["parent", "tree-id"]))] = draw(st.sampled_from(["a", "b"]))
    children = [{"name": name} for name in draw(st.lists(st.sampled_from(["a", "b"]), max_size=3))]
    return {
        "created": EPOCH + draw(st.integers(0, 1)),
        "annotations": annotations,
        "labels": labels,
        "weight": draw(st.sampled_from([1, 2, 0])),
        "max": {"cpu": draw(st.sampled_from([2, 3, "x"]))},
        "min": {"cpu": draw(st.sampled_from([1, 4]))},
        "root": {"name": "root", "children": children},
        "status": {"state": draw(st.sampled_from(["Open", "Closed", "Ajar"]))},
    }


@st.composite
def budget_states(draw: st.DrawFn) -> dict[str, Any]:
    key = draw(st.sampled_from(NAME_KEYS))
    selectors: list[Any] = [
        None,
        {},
        {"matchLabels": {key: draw(st.sampled_from(GANGS))}},
        {"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]},
        {"matchExpressions": [{"key": key, "operator": "Near"}]},
    ]
    status = {
        "disruptionsAllowed": draw(st.sampled_from([0, 1, "x"])),
        "disruptedPods": {"p0": "2030-01-01T00:00:00Z"},
    }
    return {"selector": draw(st.sampled_from(selectors)), "status": draw(st.sampled_from([{}, status]))}


def show_account(resource: ServedKind, name: str, namespace: str, state: dict[str, Any]) -> Fact:
    return lambda door: door.account(resource, group(name, namespace=namespace, **state))


def hide_account(resource: ServedKind, name: str, namespace: str) -> Fact:
    return lambda door: door.account_removed(resource, namespace, name)


def show_pod(state: dict[str, Any]) -> Fact:
    return lambda door: door.pod(pod(**state))


def hide_pod(name: str) -> Fact:
    return lambda door: door.pod_removed("default", name, f"uid-{name}")


def show_group(resource: ServedKind, name: str, state: dict[str, Any]) -> Fact:
    return lambda door: door.group(resource, group(name, **state))


def hide_group(resource: ServedKind, name: str) -> Fact:
    return lambda door: door.group_removed(resource, "default", name)


def show_class(name: str, value: int) -> Fact:
    raw = msgspec.json.encode({"metadata": {"name": name}, "value": value})
    return lambda door: door.priority_class(decode_priority_class(raw))


def show_queue(queue: str) -> Fact:
    annotations = {"scheduling.volcano.sh/queue-name": queue, "volcano.sh/namespace.weight": str(len(queue) + 1)}
    raw = msgspec.json.encode({"metadata": {"name": "default", "annotations": annotations}})
    return lambda door: door.namespace(decode_namespace(raw))


def show_budget(name: str, state: dict[str, Any] | None) -> Fact:
    """None is a budget that cannot be decoded."""
    if state is None:
        return lambda door: door.malformed_disruption_budget("default", name, f"uid-{name}", "odd")
    return lambda door: door.disruption_budget(group(name, **state))


def hide_budget(name: str) -> Fact:
    return lambda door: door.disruption_budget_removed("default", name)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Fact], list[Fact]]:
    """One world delivered twice: in full in some order, and as its final state only, in another order."""
    told: list[list[Fact]] = []
    final: list[Fact] = []
    for name in ("p0", "p1", "p2", "p3"):
        states = draw(st.lists(pod_states(name), max_size=3))
        goes = draw(st.booleans())
        story = [show_pod(state) for state in states]
        if states and goes:
            story.append(hide_pod(name))
        elif states:
            final.append(story[-1])
        told.append(story)
    for resource in (X_K8S, SIGS, VOLCANO, KUBE_BATCH):
        for name in ("a", "b"):
            groups = draw(st.lists(group_states(), max_size=2))
            goes = draw(st.booleans())
            story = [show_group(resource, name, state) for state in groups]
            if groups and goes:
                story.append(hide_group(resource, name))
            elif groups:
                final.append(story[-1])
            told.append(story)
    for name in ("high", "low"):
        values = draw(st.lists(st.integers(-3, 3), max_size=2))
        story = [show_class(name, value) for value in values]
        final += story[-1:]
        told.append(story)
    for resource, name, namespace in ACCOUNTS:
        accounts = draw(st.lists(account_states(), max_size=2))
        goes = draw(st.booleans())
        story = [show_account(resource, name, namespace, state) for state in accounts]
        if accounts and goes:
            story.append(hide_account(resource, name, namespace))
        elif accounts:
            final.append(story[-1])
        told.append(story)
    for name in ("x", "y"):
        budgets = draw(st.lists(budget_states(), max_size=3))
        goes = draw(st.booleans())
        story = [show_budget(name, state) for state in budgets]
        if budgets and goes:
            story += [show_budget(name, None), hide_budget(name)]
        elif budgets:
            final.append(story[-1])
        told.append(story)
    story = [show_queue(queue) for queue in draw(st.lists(st.sampled_from(["", "q"]), max_size=2))]
    final += story[-1:]
    told.append(story)
    return _interleaved(draw, told), draw(st.permutations(final))


def _interleaved(draw: st.DrawFn, stories: list[list[Fact]]) -> list[Fact]:
    """Return an order that preserves each object's own history: a watch never reorders it."""
    turns = draw(st.permutations([at for at, story in enumerate(stories) for _ in story]))
    remaining = [iter(story) for story in stories]
    return [next(remaining[at]) for at in turns]


def outcome(facts: list[Fact], *, left: int = 0) -> Nouns:
    """Return the final knowledge. With `left`, the gangs of the first facts are resolved together after them, as at
    the start of the process.
    """
    door = Intake(["phalanx"])
    if left:
        door.group_objects.postpone()
        facts = [*facts[:left], Intake.catch_up, *facts[left:]]
    pods: dict[str, Pod] = {}
    gangs: dict[GangKey, Gang] = {}
    accounts: dict[AccountKey, Account] = {}
    weights: dict[str, int] = {}
    budgets: Budgets = {}
    for number, fact in enumerate(facts):
        for event in fact(door):
            match event:
                case PodUpdated(found):
                    assert pods.get(found.uid) != found, "told without a change"
                    pods[found.uid] = found
                case PodRemoved(uid):
                    del pods[uid]
                case GangUpdated(gang):
                    assert gangs.get(gang.key) != gang, "told without a change"
                    gangs[gang.key] = gang
                case GangRemoved(key):
                    del gangs[key]
                case AccountUpdated(account):
                    assert accounts.get(account.key) != account, "told without a change"
                    accounts[account.key] = account
                case AccountRemoved(account_key):
                    del accounts[account_key]
                case NamespaceWeighed(namespace, weight):
                    assert weights.get(namespace, 1) != weight, "told without a change"
                    weights[namespace] = weight
                case DisruptionBudgetUpdated(budget):
                    assert budgets.get((budget.namespace, budget.name)) != budget, "told without a change"
                    budgets[budget.namespace, budget.name] = budget
                case DisruptionBudgetRemoved(namespace, name):
                    del budgets[namespace, name]
            counting = {(found.namespace, name) for found in pods.values() for name in found.budgets}
            assert counting <= budgets.keys(), "a pod names a budget that was not told, or is gone"
        named = {GangKey(found.namespace, found.gang) for found in pods.values() if found.gang}
        assert number < left or named <= gangs.keys(), "a pod names a gang that was not told"
    weighed = {namespace: weight for namespace, weight in weights.items() if weight != 1}
    return pods, gangs, accounts, weighed, budgets


@pytest.mark.slow
@pytest.mark.thorough
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories())
def test_final_specs_do_not_depend_on_the_order_of_arrival(history: tuple[list[Fact], list[Fact]]) -> None:
    full, final = history
    assert outcome(full) == outcome(final)


@pytest.mark.slow
@pytest.mark.thorough
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories(), st.data())
def test_final_specs_do_not_depend_on_the_time_of_resolution(
    history: tuple[list[Fact], list[Fact]], data: st.DataObject
) -> None:
    full, final = history
    assert outcome(full, left=data.draw(st.integers(0, len(full)))) == outcome(final)


@pytest.mark.slow
@pytest.mark.thorough
@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories())
def test_no_state_remains_when_all_objects_are_deleted(history: tuple[list[Fact], list[Fact]]) -> None:
    facts, _ = history
    ends = [hide_pod(f"p{at}") for at in range(4)]
    ends += [hide_group(resource, name) for resource in (X_K8S, SIGS, VOLCANO, KUBE_BATCH) for name in ("a", "b")]
    ends += [hide_account(*place) for place in ACCOUNTS]
    ends += [hide_budget(name) for name in ("x", "y")]
    ends.append(lambda door: door.namespace_removed("default"))
    assert outcome(facts + ends) == ({}, {}, {}, {}, {})
