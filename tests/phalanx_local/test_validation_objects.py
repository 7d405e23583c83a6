"""Rules of the other built-in kinds."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx_local.validation import validate

Obj = dict[str, Any]


def complaints(group: str, kind: str, obj: Obj, old: Obj | None = None, subresource: str = "") -> list[str]:
    cluster = kind in ("Node", "Namespace", "PriorityClass")
    meta = {"name": "x"} if cluster else {"name": "x", "namespace": "n"}
    full = {**obj, "metadata": {**meta, **obj.get("metadata", {})}}
    before = {**old, "metadata": {**meta, **old.get("metadata", {})}} if old is not None else None
    return [str(error) for error in validate(group, kind, full, before, subresource)]


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "unschedulable": True}}, None),
        ({"spec": {"taints": [{"key": "a"}]}}, "metadata.taints[0].effect: Required value"),
        ({"spec": {"taints": [{"key": "a", "effect": "X"}]}}, 'Unsupported value: "X"'),
        ({"spec": {"taints": [{"key": "a b", "effect": "NoSchedule"}]}}, "metadata.taints[0].key: Invalid value"),
        ({"spec": {"taints": [{"key": "a", "value": "b c", "effect": "NoSchedule"}]}}, "taints[0].value: Invalid"),
        (
            {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]}},
            "taints must be unique by key and effect pair",
        ),
        ({"status": {"capacity": {"cpu": "4", "nvidia.com/gpu": "8"}}}, None),
        ({"status": {"capacity": {"cpu": "-4"}}}, "must be greater than or equal to 0"),
        ({"status": {"allocatable": {"pods": "1500m"}}}, "must be an integer"),
        ({"spec": {"podCIDRs": ["10.0.0.0/33"]}}, "must be a valid CIDR value"),
    ],
)
def test_nodes(node: Obj, words: str | None) -> None:
    found = complaints("", "Node", node)
    assert found == [] if words is None else any(words in text for text in found), found


def test_identity_of_a_node_is_set_once() -> None:
    old = {"spec": {"providerID": "a", "podCIDRs": ["10.0.0.0/24"]}}
    assert complaints("", "Node", {"spec": {"providerID": "b", "podCIDRs": ["10.0.1.0/24"]}}, old) == [
        'spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid',
        'spec.providerID: Forbidden: node updates may not change providerID except from "" to valid',
    ]
    assert complaints("", "Node", old, {"spec": {}}) == []


def test_priority_classes() -> None:
    def check(item: Obj, old: Obj | None = None) -> list[str]:
        return complaints("scheduling.k8s.io", "PriorityClass", item, old)

    assert check({"value": 1_000_000_000, "preemptionPolicy": "Never"}) == []
    assert check({"value": 1_000_000_001}) == [
        "value: Forbidden: maximum allowed value of a user defined priority is 1000000000"
    ]
    assert "are reserved for system use only" in check({"metadata": {"name": "system-mine"}, "value": 1})[0]
    assert check({"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000}) == []
    assert check({"value": 2}, {"value": 1}) == ["value: Forbidden: may not be changed in an update."]
    assert check({"value": 1, "preemptionPolicy": "Never"}, {"value": 1})[0].startswith("preemptionPolicy: Invalid")
    assert "Unsupported value" in check({"value": 1, "preemptionPolicy": "X"})[0]


def test_namespaces() -> None:
    assert complaints("", "Namespace", {"spec": {"finalizers": ["kubernetes"]}}) == []
    assert "neither a standard finalizer name" in complaints("", "Namespace", {"spec": {"finalizers": ["x"]}})[0]
    active: Obj = {"status": {"phase": "Active"}}
    leaving: Obj = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Active"}}
    assert complaints("", "Namespace", active, active, "status") == []
    assert "may only be 'Terminating'" in complaints("", "Namespace", leaving, leaving, "status")[0]


def test_disruption_budgets() -> None:
    def check(**spec: Any) -> list[str]:
        return complaints("policy", "PodDisruptionBudget", {"spec": spec})

    assert check(minAvailable=1, selector={"matchLabels": {"a": "b"}}) == []
    assert check(maxUnavailable="25%") == []
    assert "cannot be both set" in check(minAvailable=1, maxUnavailable=1)[0]
    assert "must be greater than or equal to 0" in check(minAvailable=-1)[0]
    assert "a valid percent string" in check(maxUnavailable="x")[0]
    assert "must not be greater than 100%" in check(maxUnavailable="101%")[0]
    assert "Unsupported value" in check(unhealthyPodEvictionPolicy="X")[0]
    assert (
        "not a valid selector operator" in check(selector={"matchExpressions": [{"key": "a", "operator": "X"}]})[0]
    )


def test_leases() -> None:
    assert complaints("coordination.k8s.io", "Lease", {"spec": {"leaseDurationSeconds": 15}}) == []
    assert (
        "must be greater than 0"
        in complaints("coordination.k8s.io", "Lease", {"spec": {"leaseDurationSeconds": 0}})[0]
    )


def test_quotas() -> None:
    assert complaints("", "ResourceQuota", {"spec": {"hard": {"pods": "5", "requests.nvidia.com/gpu": "4"}}}) == []
    assert "must be an integer" in complaints("", "ResourceQuota", {"spec": {"hard": {"pods": "1.5"}}})[0]
    assert "standard resource type" in complaints("", "ResourceQuota", {"spec": {"hard": {"frob": "1"}}})[0]
    old: Obj = {"spec": {"scopes": ["BestEffort"]}}
    assert complaints("", "ResourceQuota", {"spec": {}}, old) == [
        "spec.scopes: Invalid value: []: field is immutable"
    ]


def test_immutable_data_objects_cannot_change() -> None:
    old: Obj = {"data": {"a": "1"}, "immutable": True}
    for kind in ("ConfigMap", "Secret"):
        found = complaints("", kind, {"data": {"a": "2"}, "immutable": False}, old)
        assert found == [
            "immutable: Forbidden: field is immutable when `immutable` is set",
            "data: Forbidden: field is immutable when `immutable` is set",
        ]
        assert "a valid config key" in complaints("", kind, {"data": {"a b": "1"}})[0]
    assert complaints("", "ConfigMap", {"data": {"a": "x" * (1024 * 1024 + 1)}})[0].startswith("[]: Too long")
    assert (
        "duplicate of key present in binaryData"
        in complaints("", "ConfigMap", {"data": {"a": ""}, "binaryData": {"a": ""}})[0]
    )
    assert complaints("", "Secret", {"type": "kubernetes.io/tls"}) == [
        "data[tls.crt]: Required value",
        "data[tls.key]: Required value",
    ]


def test_services() -> None:
    def check(old: Obj | None = None, **spec: Any) -> list[str]:
        return complaints("", "Service", {"spec": spec}, old)

    port = {"port": 80, "targetPort": "http"}
    assert check(ports=[port], selector={"a": "b"}) == []
    assert check(clusterIP="None") == []
    assert check(type="ExternalName", externalName="example.com") == []
    assert check() == ["spec.ports: Required value"]
    assert "Unsupported value" in check(type="X", ports=[port])[0]
    assert "must be between 1 and 65535" in check(ports=[{"port": 0}])[0]
    assert "spec.ports[0].name: Required value" in check(ports=[{"port": 80}, {"port": 81, "name": "a"}])
    assert (
        "may not change once set"
        in check({"spec": {"clusterIP": "10.0.0.1"}}, clusterIP="10.0.0.2", ports=[port])[0]
    )


def template(labels: Obj | None = None, **spec: Any) -> Obj:
    return {
        "metadata": {"labels": labels if labels is not None else {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


SELECTOR = {"matchLabels": {"app": "x"}}


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"])
def test_selector_of_a_pod_set_must_match_its_template(kind: str) -> None:
    def check(old: Obj | None = None, **spec: Any) -> list[str]:
        return complaints("apps", kind, {"spec": spec}, old)

    assert check(selector=SELECTOR, template=template()) == []
    assert check(template=template()) == ["spec.selector: Required value"]
    assert (
        "`selector` does not match template `labels`"
        in check(selector=SELECTOR, template=template({"app": "y"}))[0]
    )
    assert check(selector=SELECTOR) == ["spec.template: Required value"]
    assert (
        "must be greater than or equal to 0" in check(selector=SELECTOR, template=template(), minReadySeconds=-1)[0]
    )
    bad = template()
    bad["spec"]["containers"][0]["name"] = "A"
    assert check(selector=SELECTOR, template=bad)[0].startswith("spec.template.spec.containers[0].name: Invalid")
    never = template(restartPolicy="Never")
    assert any('Unsupported value: "Never"' in text for text in check(selector=SELECTOR, template=never))


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "DaemonSet"])
def test_selectors_never_change(kind: str) -> None:
    old = {"spec": {"selector": SELECTOR, "template": template()}}
    new = {"spec": {"selector": {"matchLabels": {"app": "y"}}, "template": template({"app": "y"})}}
    assert "field is immutable" in complaints("apps", kind, new, old)[0]


def test_most_of_a_stateful_set_is_fixed() -> None:
    old = {"spec": {"selector": SELECTOR, "template": template(), "serviceName": "a", "replicas": 1}}
    assert complaints("apps", "StatefulSet", {"spec": {**old["spec"], "replicas": 2}}, old) == []
    found = complaints("apps", "StatefulSet", {"spec": {**old["spec"], "serviceName": "b"}}, old)
    assert found[0].startswith("spec: Forbidden: updates to statefulset spec for fields other than 'replicas'")


def test_deployment_strategies() -> None:
    def check(**strategy: Any) -> list[str]:
        return complaints(
            "apps", "Deployment", {"spec": {"selector": SELECTOR, "template": template(), "strategy": strategy}}
        )

    assert check(type="RollingUpdate", rollingUpdate={"maxSurge": "25%", "maxUnavailable": 0}) == []
    assert "may not be specified when strategy `type` is 'Recreate'" in check(type="Recreate", rollingUpdate={})[0]
    assert "Unsupported value" in check(type="X")[0]
    assert "a valid percent string" in check(rollingUpdate={"maxSurge": "x"})[0]


def job(**spec: Any) -> Obj:
    return {"spec": {"template": template(restartPolicy="Never"), **spec}}


def test_jobs() -> None:
    def check(**spec: Any) -> list[str]:
        return complaints("batch", "Job", job(**spec))

    assert check(parallelism=2, completions=4) == []
    assert "must be greater than or equal to 0" in check(parallelism=-1)[0]
    assert "when completion mode is Indexed" in check(completionMode="Indexed")[0]
    assert "Unsupported value" in check(completionMode="X")[0]
    assert check(template=template())[0] == (
        'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    )


def test_a_job_changes_its_parallelism_and_a_suspended_one_its_placement() -> None:
    old = job(parallelism=1, suspend=True)
    placed = job(parallelism=2, suspend=False)
    placed["spec"]["template"]["spec"]["nodeSelector"] = {"zone": "a"}
    assert complaints("batch", "Job", placed, old) == []
    started = {**old, "status": {"startTime": "2026-01-01T00:00:00Z"}}
    assert complaints("batch", "Job", placed, started)[0].startswith("spec.template: Invalid value")
    other = job(suspend=True)
    other["spec"]["template"]["spec"]["containers"][0]["image"] = "j"
    assert complaints("batch", "Job", other, old)[0].startswith("spec.template: Invalid value")
    assert "field is immutable" in complaints("batch", "Job", job(completions=2), job(completions=1))[0]


def test_cron_jobs() -> None:
    def check(**spec: Any) -> list[str]:
        return complaints("batch", "CronJob", {"spec": {"jobTemplate": job(), **spec}})

    assert check(schedule="*/5 * * * *", concurrencyPolicy="Forbid") == []
    assert check(schedule="@hourly") == []
    assert check() == ["spec.schedule: Required value"]
    assert "expected exactly 5 fields" in check(schedule="* *")[0]
    assert "Unsupported value" in check(schedule="@daily", concurrencyPolicy="X")[0]
