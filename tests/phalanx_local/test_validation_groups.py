"""The native gang API: PodGroup and Workload in v1alpha2 and v1beta1."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from phalanx_local.validation import validate

Obj = dict[str, Any]
VERSIONS = ("v1alpha2", "v1beta1")


def obj(kind: str, version: str, spec: Obj) -> Obj:
    return {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": kind,
        "metadata": {"name": "g", "namespace": "n"},
        "spec": spec,
    }


def complaints(kind: str, version: str, spec: Obj, old: Obj | None = None) -> list[str]:
    before = obj(kind, version, old) if old is not None else None
    return [str(error) for error in validate("scheduling.k8s.io", kind, obj(kind, version, spec), before)]


def gang(count: int = 2, **spec: Any) -> Obj:
    return {"schedulingPolicy": {"gang": {"minCount": count}}, **spec}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_policy_is_basic_or_gang(version: str) -> None:
    assert complaints("PodGroup", version, gang()) == []
    assert complaints("PodGroup", version, {"schedulingPolicy": {"basic": {}}}) == []
    assert complaints("PodGroup", version, {}) == [
        'spec.schedulingPolicy: Invalid value: "": must specify one of: `basic`, `gang`'
    ]
    both = {"schedulingPolicy": {"basic": {}, "gang": {"minCount": 1}}}
    assert complaints("PodGroup", version, both) == [
        'spec.schedulingPolicy: Invalid value: "{basic, gang}": must specify exactly one of: `basic`, `gang`'
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_gang_counts_at_least_one(version: str) -> None:
    assert complaints("PodGroup", version, gang(1)) == []
    assert complaints("PodGroup", version, gang(0)) == ["spec.schedulingPolicy.gang.minCount: Required value"]
    assert complaints("PodGroup", version, gang(-1)) == [
        "spec.schedulingPolicy.gang.minCount: Invalid value: -1: must be greater than or equal to 1"
    ]
    (text,) = complaints("PodGroup", version, {"schedulingPolicy": {"gang": {"minCount": "2"}}})
    assert "cannot unmarshal string" in text


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"schedulingConstraints": {"topology": [{"key": "zone"}]}}, None),
        ({"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}}, "must have at most 1 item"),
        ({"schedulingConstraints": {"topology": [{"key": ""}]}}, "topology[0].key: Required value"),
        ({"schedulingConstraints": {"topology": [{"key": "a b"}]}}, "topology[0].key: Invalid value"),
        ({"resourceClaims": [{"name": "c", "resourceClaimName": "x"}]}, None),
        (
            {"resourceClaims": [{"name": "c"}]},
            "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
        ),
        (
            {"resourceClaims": [{"name": "c", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}]},
            "must specify exactly one of",
        ),
        ({"resourceClaims": [{"name": "c", "resourceClaimName": "x"}] * 2}, "Duplicate value"),
        ({"resourceClaims": [{"name": f"c{n}", "resourceClaimName": "x"} for n in range(5)]}, "at most 4 items"),
        ({"priorityClassName": "A"}, "spec.priorityClassName: Invalid value"),
        ({"priority": 1_000_000_001}, "must be less than or equal to 1000000000"),
    ],
)
def test_the_rest_of_a_group(spec: Obj, words: str | None) -> None:
    for version in VERSIONS:
        found = complaints("PodGroup", version, gang(**spec))
        assert found == [] if words is None else any(words in text for text in found), (version, found)


def test_disruption_modes_are_spelled_by_version() -> None:
    assert complaints("PodGroup", "v1alpha2", gang(disruptionMode="PodGroup")) == []
    assert "Unsupported value" in complaints("PodGroup", "v1alpha2", gang(disruptionMode="X"))[0]
    assert complaints("PodGroup", "v1beta1", gang(disruptionMode={"all": {}})) == []
    assert "must specify one of" in complaints("PodGroup", "v1beta1", gang(disruptionMode={}))[0]
    assert "exactly one of" in complaints("PodGroup", "v1beta1", gang(disruptionMode={"all": {}, "single": {}}))[0]
    basic: Obj = {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}}
    assert "must not be `all` with the basic scheduling policy" in complaints("PodGroup", "v1beta1", basic)[0]


def test_links_to_a_workload_are_spelled_by_version() -> None:
    link = {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}
    assert complaints("PodGroup", "v1alpha2", gang(podGroupTemplateRef=link)) == []
    assert complaints("PodGroup", "v1alpha2", gang(podGroupTemplateRef={"workload": {}})) == [
        "spec.podGroupTemplateRef.workload.workloadName: Required value",
        "spec.podGroupTemplateRef.workload.podGroupTemplateName: Required value",
    ]
    assert complaints("PodGroup", "v1beta1", gang(workloadRef={"workloadName": "w", "templateName": "t"})) == []
    assert complaints("PodGroup", "v1beta1", gang(workloadRef={"workloadName": "W", "templateName": "t"}))[
        0
    ].startswith("spec.workloadRef.workloadName: Invalid value")


def test_the_count_of_a_gang_changes_from_v1beta1_on() -> None:
    assert complaints("PodGroup", "v1beta1", gang(3), gang(2)) == []
    assert complaints("PodGroup", "v1alpha2", gang(3), gang(2)) == [
        'spec.schedulingPolicy: Invalid value: {"gang":{"minCount":3}}: field is immutable'
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_everything_else_is_fixed(version: str) -> None:
    assert complaints("PodGroup", version, gang(), gang()) == []
    assert complaints("PodGroup", version, gang(priority=1), gang()) == [
        "spec.priority: Invalid value: 1: field is immutable"
    ]
    found = complaints("PodGroup", version, {"schedulingPolicy": {"basic": {}}}, gang())
    assert found
    assert all(text.startswith("spec.schedulingPolicy") for text in found)


def test_status_conditions_are_complete_and_unique() -> None:
    group = obj("PodGroup", "v1beta1", gang())
    condition = {
        "type": "PodGroupInitiallyScheduled",
        "status": "True",
        "reason": "Scheduled",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }

    def check(*conditions: Obj) -> list[str]:
        new = {**group, "status": {"conditions": list(conditions)}}
        return [str(error) for error in validate("scheduling.k8s.io", "PodGroup", new, group, "status")]

    assert check(condition) == []
    assert check({**condition, "reason": ""}) == ["status.conditions[0].reason: Required value"]
    assert check({**condition, "status": "Maybe"})[0].startswith("status.conditions[0].status: Unsupported value")
    assert check(condition, condition) == ['status.conditions[1]: Duplicate value: "PodGroupInitiallyScheduled"']


def workload(*names: str, **spec: Any) -> Obj:
    return {"podGroupTemplates": [{"name": name, **gang()} for name in names], **spec}


@pytest.mark.parametrize("version", VERSIONS)
def test_workloads_hold_one_to_eight_templates_with_names_of_their_own(version: str) -> None:
    assert complaints("Workload", version, workload("a", "b")) == []
    assert complaints("Workload", version, workload()) == [
        "spec.podGroupTemplates: Required value: must have at least one item"
    ]
    assert "must have at most 8 items" in complaints("Workload", version, workload(*"abcdefghi"))[0]
    assert "Duplicate value" in complaints("Workload", version, workload("a", "a"))[0]
    assert complaints("Workload", version, workload("A"))[0].startswith(
        "spec.podGroupTemplates[0].name: Invalid value"
    )
    bad = workload("a")
    bad["podGroupTemplates"][0]["schedulingPolicy"] = {}
    assert complaints("Workload", version, bad)[0].startswith("spec.podGroupTemplates[0].schedulingPolicy: Invalid")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_controller_of_a_workload_is_set_once(version: str) -> None:
    owner = {"apiGroup": "batch", "kind": "Job", "name": "j"}
    assert complaints("Workload", version, workload("a", controllerRef=owner), workload("a")) == []
    changed = workload("a", controllerRef={**owner, "name": "k"})
    found = complaints("Workload", version, changed, workload("a", controllerRef=owner))
    assert found[0].startswith("spec.controllerRef: Invalid value")
    assert complaints("Workload", version, workload("a", controllerRef={"kind": "a/b", "name": ""})) == [
        "spec.controllerRef.kind: Invalid value: \"a/b\": may not contain '/'",
        "spec.controllerRef.name: Required value",
    ]


def test_templates_are_fixed_but_for_the_count_in_v1beta1() -> None:
    changed = workload("a")
    changed["podGroupTemplates"][0]["schedulingPolicy"]["gang"]["minCount"] = 9
    assert complaints("Workload", "v1beta1", changed, workload("a")) == []
    assert complaints("Workload", "v1alpha2", changed, workload("a"))[0].startswith(
        "spec.podGroupTemplates: Invalid"
    )
    assert "items may not be added" in complaints("Workload", "v1beta1", workload("a", "b"), workload("a"))[0]
    assert "items may not be removed" in complaints("Workload", "v1beta1", workload("a"), workload("a", "b"))[0]


def test_trees_of_templates_have_unique_names_and_four_levels() -> None:
    def tree(depth: int) -> Obj:
        if depth == 1:
            return {"podGroupTemplates": [{"name": "leaf", **gang()}]}
        node = {
            "name": f"level{depth}",
            "schedulingPolicy": {"gang": {"minGroupCount": 1}},
            **copy.deepcopy(tree(depth - 1)),
        }
        return {"compositePodGroupTemplates": [node]}

    assert complaints("Workload", "v1beta1", tree(4)) == []
    assert any("more than 4 levels deep" in text for text in complaints("Workload", "v1beta1", tree(6)))
    twice = tree(2)
    twice["compositePodGroupTemplates"][0]["name"] = "leaf"
    assert any("Duplicate value" in text for text in complaints("Workload", "v1beta1", twice))
    mixed = {**tree(1), **tree(2)}
    assert "must specify exactly one of" in complaints("Workload", "v1beta1", mixed)[0]
