"""Mutable fields of a pod."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from phalanx_local.validation import validate
from phalanx_local.validation.qos import qos_class

Obj = dict[str, Any]


def pod(**spec: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
            "initContainers": [{"name": "init", "image": "i"}],
            "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute"}],
            **spec,
        },
    }


def complaints(old: Obj, change: Callable[[Obj], None], subresource: str = "") -> list[str]:
    new = copy.deepcopy(old)
    change(new)
    return [str(error) for error in validate("", "Pod", new, old, subresource)]


def setter(*path: str | int, value: Any) -> Callable[[Obj], None]:
    def change(obj: Obj) -> None:
        target: Any = obj["spec"]
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        setter("containers", 0, "image", value="new"),
        setter("initContainers", 0, "image", value="new"),
        setter("activeDeadlineSeconds", value=10),
        setter("tolerations", 0, "tolerationSeconds", value=60),
        lambda obj: obj["spec"]["tolerations"].append({"operator": "Exists"}),
        lambda obj: obj["metadata"].update(labels={"a": "b"}),
        lambda obj: obj["spec"].update(affinity={}, nodeSelector=None, hostNetwork=False),
    ],
)
def test_some_things_may_change(change: Callable[[Obj], None]) -> None:
    assert complaints(pod(), change) == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (setter("nodeName", value="other"), "nodeName"),
        (setter("nodeSelector", value={"a": "b"}), "nodeSelector"),
        (setter("priority", value=5), "priority"),
        (setter("schedulerName", value="other"), "schedulerName"),
        (setter("containers", 0, "command", value=["x"]), "containers"),
        (setter("containers", 0, "resources", value={"requests": {"cpu": "2"}}), "containers"),
        (setter("terminationGracePeriodSeconds", value=5), "terminationGracePeriodSeconds"),
        (setter("schedulingGroup", value={"podGroupName": "g"}), "schedulingGroup"),
    ],
)
def test_everything_else_stays(change: Callable[[Obj], None], field: str) -> None:
    (text,) = complaints(pod(), change)
    assert text.startswith(
        "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`"
    )
    assert text.endswith(f"changed: {field}")


def test_containers_are_neither_added_nor_removed() -> None:
    extra = {"name": "d", "image": "i"}
    assert complaints(pod(), lambda obj: obj["spec"]["containers"].append(extra)) == [
        "spec.containers: Forbidden: pod updates may not add or remove containers"
    ]


def test_an_image_is_never_taken_away() -> None:
    assert "spec.containers[0].image: Required value" in complaints(
        pod(), setter("containers", 0, "image", value="")
    )


def test_the_deadline_only_comes_closer() -> None:
    old = pod(activeDeadlineSeconds=60)
    assert complaints(old, setter("activeDeadlineSeconds", value=30)) == []
    (text,) = complaints(old, setter("activeDeadlineSeconds", value=90))
    assert "must be less than or equal to previous value" in text
    (text,) = complaints(old, lambda obj: obj["spec"].pop("activeDeadlineSeconds"))
    assert "must not update from a positive integer to nil value" in text


def test_a_toleration_is_never_taken_away() -> None:
    (text,) = complaints(pod(), setter("tolerations", value=[]))
    assert text == (
        "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
    )


def test_a_negative_grace_period_may_become_one() -> None:
    old = pod(terminationGracePeriodSeconds=-5)
    assert complaints(old, setter("terminationGracePeriodSeconds", value=1)) == []
    assert len(complaints(old, setter("terminationGracePeriodSeconds", value=2))) == 1


GATED = pod(
    schedulingGates=[{"name": "a"}, {"name": "b"}],
    nodeSelector={"zone": "a"},
    affinity={
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
            }
        }
    },
)
TERMS = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")


def test_gates_are_only_removed() -> None:
    assert complaints(GATED, setter("schedulingGates", value=[{"name": "b"}])) == []
    assert complaints(GATED, setter("schedulingGates", value=[])) == []
    (text,) = complaints(GATED, setter("schedulingGates", value=[{"name": "a"}, {"name": "b"}, {"name": "c"}]))
    assert text == (
        "spec.schedulingGates[2].name: Forbidden: only deletion is allowed, but found new scheduling gate 'c'"
    )


def test_a_gated_pod_may_be_restricted_further() -> None:
    assert complaints(GATED, setter("nodeSelector", value={"zone": "a", "ssd": "yes"})) == []
    more = [{"key": "zone", "operator": "Exists"}, {"key": "ssd", "operator": "Exists"}]
    assert complaints(GATED, setter(*TERMS, value=[{"matchExpressions": more}])) == []
    bare = pod(schedulingGates=[{"name": "a"}])
    affinity = GATED["spec"]["affinity"]
    assert complaints(bare, setter("affinity", value=affinity)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (setter("nodeSelector", value={"zone": "b"}), "only additions to spec.nodeSelector are allowed"),
        (setter("nodeSelector", value={}), "only additions to spec.nodeSelector are allowed"),
        (setter(*TERMS, value=[]), "no additions/deletions to non-empty NodeSelectorTerms list are allowed"),
        (
            setter(*TERMS, value=[{"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}]),
            "only additions are allowed (no mutations or deletions)",
        ),
        (setter("affinity", "podAffinity", value={"x": []}), "pod updates may not change fields other than"),
    ],
)
def test_a_gated_pod_is_not_set_free(change: Callable[[Obj], None], words: str) -> None:
    found = complaints(GATED, change)
    assert any(words in text for text in found), found


def test_without_gates_placement_is_fixed() -> None:
    old = pod(nodeSelector={"zone": "a"})
    assert len(complaints(old, setter("nodeSelector", value={"zone": "a", "ssd": "yes"}))) == 1


def test_resize_changes_cpu_and_memory_only() -> None:
    def resize(value: Obj) -> list[str]:
        return complaints(pod(), setter("containers", 0, "resources", value=value), "resize")

    assert resize({"requests": {"cpu": "2"}}) == []
    assert resize({"requests": {"cpu": "2", "memory": "1Gi"}}) == []
    assert "resource requests cannot be removed" in resize({})[0]
    assert any(
        "only cpu and memory resources are mutable" in text
        for text in resize({"requests": {"cpu": "1", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}})
    )
    (text,) = complaints(pod(), setter("containers", 0, "image", value="x"), "resize")
    assert "only cpu and memory resources are mutable" in text


def test_resize_keeps_the_quality_of_service() -> None:
    def found(before: Obj, after: Obj) -> list[str]:
        old = pod(containers=[{"name": "c", "image": "i", "resources": before}], initContainers=[])
        return complaints(old, setter("containers", 0, "resources", value=after), "resize")

    def same(cpu: str, memory: str = "1Gi") -> Obj:
        return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}

    assert found(same("1"), same("2")) == []
    unequal = {**same("2"), "requests": {"cpu": "1500m", "memory": "1Gi"}}
    assert found(same("1"), unequal) == [
        'spec: Invalid value: "Guaranteed": Pod QOS Class may not change as a result of resizing'
    ]
    (text,) = found({}, {"requests": {"cpu": "1"}})
    assert 'Invalid value: "BestEffort"' in text


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([{}], "BestEffort"),
        ([None], "BestEffort"),
        ([{"limits": {"example.com/gpu": "1"}, "requests": {"example.com/gpu": "1"}}], "BestEffort"),
        ([{"requests": {"cpu": "0"}}], "BestEffort"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
        ([{"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "1000m", "memory": "1"}}], "Guaranteed"),
        ([{"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "1", "memory": "1"}}, {}], "Burstable"),
    ],
)
def test_quality_of_service(resources: list[Obj | None], expected: str) -> None:
    containers = [{"name": f"c{index}", "resources": value} for index, value in enumerate(resources)]
    assert qos_class({"containers": containers}) == expected


def test_resize_leaves_init_containers_alone_unless_they_keep_running() -> None:
    change = setter("initContainers", 0, "resources", value={"requests": {"cpu": "2"}})
    (text,) = complaints(pod(), change, "resize")
    assert "resources for non-sidecar init containers are immutable" in text
    sidecar = pod(
        initContainers=[
            {"name": "s", "image": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
        ]
    )
    assert complaints(sidecar, change, "resize") == []


def test_ephemeral_containers_are_added_and_never_changed() -> None:
    old = pod(ephemeralContainers=[{"name": "e", "image": "i"}])
    added = [{"name": "e", "image": "i"}, {"name": "f", "image": "i", "targetContainerName": "c"}]
    assert complaints(old, setter("ephemeralContainers", value=added), "ephemeralcontainers") == []
    found = complaints(old, setter("ephemeralContainers", value=[]), "ephemeralcontainers")
    assert 'existing ephemeral containers "e" may not be removed' in found[0]
    found = complaints(old, setter("ephemeralContainers", 0, "image", value="j"), "ephemeralcontainers")
    assert 'existing ephemeral containers "e" may not be changed' in found[0]
    found = complaints(
        old,
        lambda obj: obj["spec"]["ephemeralContainers"].append({"name": "c", "image": "i"}),
        "ephemeralcontainers",
    )
    assert any('Duplicate value: "c"' in text for text in found)


def status(**values: Any) -> Callable[[Obj], None]:
    return lambda obj: obj.update(status=values)


ENDED = {"name": "c", "state": {"terminated": {"exitCode": 1}}}
RUNNING = {"name": "c", "state": {"running": {}}}


def test_a_container_that_has_ended_for_good_does_not_run_again() -> None:
    for policy, allowed in (("Never", False), ("OnFailure", True), ("Always", True)):
        old = pod(restartPolicy=policy)
        old["status"] = {"containerStatuses": [ENDED]}
        found = complaints(old, status(containerStatuses=[RUNNING]), "status")
        assert (found == []) == allowed, policy
    old = pod(restartPolicy="OnFailure")
    old["status"] = {"containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 0}}}]}
    assert complaints(old, status(containerStatuses=[RUNNING]), "status") == [
        "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
    ]


def test_status_names_nodes_and_addresses_properly() -> None:
    assert complaints(pod(), status(phase="Running", podIPs=[{"ip": "10.0.0.1"}]), "status") == []
    assert "must be a valid IP address" in complaints(pod(), status(podIPs=[{"ip": "x"}]), "status")[0]
    assert complaints(pod(), status(nominatedNodeName="A_"), "status")[0].startswith(
        'status.nominatedNodeName: Invalid value: "A_"'
    )


def test_the_status_endpoint_does_not_bind() -> None:
    assert complaints(pod(), setter("nodeName", value="n"), "status") == [
        "status.nodeName: Forbidden: may not be changed directly"
    ]


def test_the_quality_class_never_changes() -> None:
    old = pod()
    old["status"] = {"qosClass": "Burstable"}
    assert complaints(old, status(qosClass="Guaranteed"), "status") == [
        'status.qosClass: Invalid value: "Guaranteed": field is immutable'
    ]
