"""PodDisruptionBudgets: allowed disruptions, counted pods, and protection by unreadable budgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.dialects.intake import Intake
from phalanx.dialects.label_selectors import read_selector, selects
from phalanx.model.disruption import DisruptionBudget
from phalanx.model.events import ClusterEvent, DisruptionBudgetRemoved, DisruptionBudgetUpdated, PodUpdated
from tests.dialects.objects import group, pod
from tests.extent import examples

WEB = {"app": "web"}
SELECT_WEB = {"matchLabels": WEB}


def intake() -> Intake:
    return Intake(["phalanx"])


def budget(
    name: str = "b",
    selector: Any = SELECT_WEB,
    status: Any = None,
    generation: int | None = None,
    namespace: str = "default",
    **spec: Any,
) -> dict[str, Any]:
    document = group(name, namespace=namespace, **spec)
    if selector != "absent":
        document["spec"]["selector"] = selector
    if status is not None:
        document["status"] = status
    if generation is not None:
        document["metadata"]["generation"] = generation
    return document


def the_budget(events: list[ClusterEvent]) -> DisruptionBudget:
    (found,) = [event.budget for event in events if isinstance(event, DisruptionBudgetUpdated)]
    return found


def counted(events: list[ClusterEvent]) -> dict[str, tuple[str, ...]]:
    return {event.pod.name: event.pod.budgets for event in events if isinstance(event, PodUpdated)}


def told(door: Intake) -> list[str]:
    return [notice.message for notice in door.drain_warnings()]


# Allowed disruptions.


def test_budget_allows_the_disruptions_of_its_status() -> None:
    status = {"disruptionsAllowed": 2, "observedGeneration": 3, "disruptedPods": {"a": "2030-01-01T00:00:00Z"}}
    found = the_budget(intake().disruption_budget(budget(status=status, generation=3)))
    assert found == DisruptionBudget("default", "b", 2, frozenset({"a"}))


@pytest.mark.parametrize("status", [None, {}, {"disruptionsAllowed": 0}, {"disruptionsAllowed": -1}])
def test_budget_without_a_status_allows_no_disruption(status: Any) -> None:
    assert the_budget(intake().disruption_budget(budget(status=status))).allowed == 0


@pytest.mark.parametrize(("seen", "allowed"), [(None, 0), (1, 0), (2, 5), (3, 5)])
def test_budget_with_an_outdated_status_allows_no_disruption(seen: int | None, allowed: int) -> None:
    status = {"disruptionsAllowed": 5, **({} if seen is None else {"observedGeneration": seen})}
    assert the_budget(intake().disruption_budget(budget(status=status, generation=2))).allowed == allowed


def test_unchanged_budget_is_no_event() -> None:
    door = intake()
    door.pod(pod("a", labels=WEB))
    door.disruption_budget(budget(status={"disruptionsAllowed": 1}))
    more = {"disruptionsAllowed": 1, "currentHealthy": 9}
    assert door.disruption_budget(budget(status=more)) == []


def test_changed_status_is_an_event_of_the_budget_only() -> None:
    door = intake()
    door.pod(pod("a", labels=WEB))
    door.disruption_budget(budget(status={"disruptionsAllowed": 1}))
    (event,) = door.disruption_budget(budget(status={"disruptionsAllowed": 0}))
    assert event == DisruptionBudgetUpdated(DisruptionBudget("default", "b", 0))


def test_deletion_of_a_budget_is_reported_after_its_pods() -> None:
    door = intake()
    door.pod(pod("a", labels=WEB))
    door.disruption_budget(budget())
    pods, gone = door.disruption_budget_removed("default", "b")
    assert counted([pods]) == {"a": ()}
    assert gone == DisruptionBudgetRemoved("default", "b")
    assert door.disruption_budget_removed("default", "b") == []


# Counted pods.


def test_pods_with_matching_labels_are_counted_in_any_order_of_arrival() -> None:
    door = intake()
    door.pod(pod("early", labels={**WEB, "index": "0"}))
    door.pod(pod("other", labels={"app": "db"}))
    door.pod(pod("elsewhere", labels=WEB, namespace="team"))
    events = door.disruption_budget(budget())
    assert isinstance(events[0], DisruptionBudgetUpdated)
    assert counted(events) == {"early": ("b",)}
    assert counted(door.pod(pod("late", labels=WEB))) == {"late": ("b",)}
    assert counted(door.pod(pod("unlike", labels={"app": "db", "index": "1"}))) == {"unlike": ()}


def test_pod_counted_by_several_budgets_names_them_all() -> None:
    door = intake()
    door.disruption_budget(budget("z"))
    door.disruption_budget(budget("a", selector={}))
    assert counted(door.pod(pod("p", labels=WEB))) == {"p": ("a", "z")}
    assert counted(door.disruption_budget_removed("default", "a")) == {"p": ("z",)}


@pytest.mark.parametrize("labels", [{}, WEB])
def test_empty_selector_matches_every_pod_of_the_namespace(labels: dict[str, str]) -> None:
    door = intake()
    door.pod(pod("p", labels=labels))
    assert counted(door.disruption_budget(budget(selector={}))) == {"p": ("b",)}


@pytest.mark.parametrize("selector", [None, "absent"])
def test_absent_selector_matches_no_pod(selector: str | None) -> None:
    door = intake()
    door.pod(pod("p", labels=WEB))
    assert counted(door.disruption_budget(budget(selector=selector))) == {}
    assert told(door) == []


def test_pod_without_labels_is_not_counted_by_a_budget_with_a_label_selector() -> None:
    door = intake()
    door.disruption_budget(budget())
    assert counted(door.pod(pod("p"))) == {"p": ()}


def test_changed_selector_changes_the_counted_pods() -> None:
    door = intake()
    for name, labels in (("web", WEB), ("db", {"app": "db"}), ("none", {})):
        door.pod(pod(name, labels=labels))
    door.disruption_budget(budget())
    selector = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}
    assert counted(door.disruption_budget(budget(selector=selector))) == {"web": (), "db": ("b",), "none": ("b",)}


def test_changed_labels_of_a_pod_change_its_budgets() -> None:
    door = intake()
    door.disruption_budget(budget())
    door.pod(pod("p", labels=WEB))
    assert counted(door.pod(pod("p", labels={"app": "db"}))) == {"p": ()}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pod_is_not_counted(phase: str) -> None:
    door = intake()
    door.disruption_budget(budget())
    door.pod(pod("p", labels=WEB, node="n", phase="Running"))
    assert counted(door.pod(pod("p", labels=WEB, node="n", phase=phase))) == {"p": ()}
    assert counted(door.disruption_budget(budget(selector={}))) == {}


def test_deleted_pod_is_not_counted_and_a_namesake_is_counted_by_its_own_labels() -> None:
    door = intake()
    door.disruption_budget(budget())
    door.pod(pod("p", labels=WEB))
    door.pod(pod("p", uid="second", labels={"app": "db"}))
    assert counted(door.disruption_budget(budget(selector={}))) == {"p": ("b",)}
    door.pod_removed("default", "p", "second")
    assert counted(door.disruption_budget(budget())) == {}


def test_labels_unused_for_a_while_match_the_present_selectors() -> None:
    door = intake()
    door.disruption_budget(budget())
    door.pod(pod("p", labels=WEB))
    door.pod_removed("default", "p", "")
    door.disruption_budget(budget(selector={"matchLabels": {"app": "db"}}))
    assert counted(door.pod(pod("q", labels=WEB))) == {"q": ()}
    door.disruption_budget_removed("default", "b")
    door.disruption_budget(budget())
    assert counted(door.pod(pod("r", labels=WEB))) == {"r": ("b",)}


def test_namespace_with_many_former_pods_is_matched_correctly() -> None:
    door = intake()
    door.disruption_budget(budget())
    door.pod(pod("stays", labels={**WEB, "index": "-1"}))
    for at in range(1200):
        door.pod(pod("p", uid=str(at), labels={**WEB, "index": str(at)}))
    counting = {"matchExpressions": [{"key": "index", "operator": "In", "values": ["-1", "1199"]}]}
    assert counted(door.disruption_budget(budget("c", selector=counting))) == {"stays": ("b", "c"), "p": ("b", "c")}
    assert counted(door.disruption_budget_removed("default", "b")) == {"stays": ("c",), "p": ("c",)}


# An unreadable object protects its own pods and affects no other.


def test_pod_that_becomes_undecodable_is_counted_as_before() -> None:
    door = intake()
    door.pod(pod("p", labels=WEB, node="n"))
    door.disruption_budget(budget())
    assert counted(door.malformed_pod("default", "p", "uid-p", "odd", b"{")) == {"p": ("b",)}
    assert counted(door.disruption_budget_removed("default", "b")) == {"p": ()}


def test_budget_that_becomes_undecodable_allows_no_disruption_of_its_pods() -> None:
    door = intake()
    door.pod(pod("p", labels=WEB))
    door.disruption_budget(budget(status={"disruptionsAllowed": 3}))
    events = door.malformed_disruption_budget("default", "b", "uid-b", "unexpected end")
    assert events == [DisruptionBudgetUpdated(DisruptionBudget("default", "b", 0))]
    assert counted(door.pod(pod("q", labels=WEB))) == {"q": ("b",)}
    assert told(door) == ["PodDisruptionBudget default/b: cannot be read: unexpected end; apply it again"]


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (budget(selector="web"), 'spec.selector is "web"; selector: "web" is not an object; it protects no pod'),
        (
            budget(selector={"matchExpressions": [{"key": "app", "operator": "Near"}]}),
            "app: unknown operator 'Near'; it protects no pod",
        ),
        ({**budget(), "spec": ["x"]}, 'spec is ["x"]; it protects no pod'),
    ],
)
def test_unreadable_selector_matches_no_pod_and_is_reported(document: dict[str, Any], complaint: str) -> None:
    door = intake()
    door.pod(pod("p", labels=WEB))
    assert counted(door.disruption_budget(document)) == {}
    (message,) = told(door)
    assert complaint in message


@pytest.mark.parametrize(
    ("status", "complaint"),
    [
        ("fine", 'status is "fine"; nothing is allowed'),
        ({"disruptionsAllowed": "all"}, 'status.disruptionsAllowed is "all"; nothing is allowed'),
        ({"disruptionsAllowed": 0, "disruptedPods": ["p"]}, 'status.disruptedPods is ["p"]; the value is ignored'),
    ],
)
def test_unreadable_status_allows_no_disruption(status: Any, complaint: str) -> None:
    door = intake()
    door.pod(pod("p", labels=WEB))
    events = door.disruption_budget(budget(status=status))
    assert the_budget(events) == DisruptionBudget("default", "b")
    assert counted(events) == {"p": ("b",)}
    (message,) = told(door)
    assert message.startswith(f"PodDisruptionBudget default/b: {complaint}")


def test_fault_of_a_budget_is_reported_once_and_not_after_its_correction() -> None:
    door = intake()
    door.disruption_budget(budget(selector="web"))
    assert len(told(door)) == 1
    door.disruption_budget(budget(selector="web", status={"disruptionsAllowed": 1}))
    assert told(door) == []
    door.disruption_budget(budget("c", selector="web"))
    door.disruption_budget(budget("c"))
    assert told(door) == []


# Many pods and budgets.

LABELS = st.dictionaries(st.sampled_from(["app", "tier", "index"]), st.sampled_from(["a", "b"]), max_size=2)
REQUIREMENTS = st.one_of(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["app", "tier"]),
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(st.sampled_from(["a", "b"]), min_size=1),
        }
    ),
    st.fixed_dictionaries(
        {"key": st.sampled_from(["app", "index"]), "operator": st.sampled_from(["Exists", "DoesNotExist"])}
    ),
)
SELECTORS = st.none() | st.fixed_dictionaries(
    {"matchLabels": LABELS, "matchExpressions": st.lists(REQUIREMENTS, max_size=2)}
)
STEPS = st.lists(
    st.tuples(st.just("pod"), st.sampled_from(["p", "q", "r"]), st.none() | LABELS)
    | st.tuples(st.just("budget"), st.sampled_from(["x", "y"]), SELECTORS | st.just("gone")),
    max_size=30,
)


@pytest.mark.thorough
@settings(max_examples=examples(300), deadline=None)
@given(STEPS)
def test_after_every_step_each_pod_names_exactly_the_budgets_that_select_it(
    steps: list[tuple[str, str, Any]],
) -> None:
    """The reference matches every pair from scratch."""
    door = intake()
    pods: dict[str, Mapping[str, str]] = {}
    selectors: dict[str, Any] = {}
    found: dict[str, tuple[str, ...]] = {}
    for kind, name, value in steps:
        if kind == "pod" and value is None:
            door.pod_removed("default", name, "")
            pods.pop(name, None)
            continue
        if kind == "pod":
            pods[name] = value
            events = door.pod(pod(name, labels=value))
        elif value == "gone":
            selectors.pop(name, None)
            events = door.disruption_budget_removed("default", name)
        else:
            selectors[name] = value
            events = door.disruption_budget(budget(name, selector=value))
        found |= counted(events)
        for each, labels in pods.items():
            expected = [
                name
                for name, selector in sorted(selectors.items())
                if selector is not None and selects(read_selector(selector), labels)
            ]
            assert list(found[each]) == expected
