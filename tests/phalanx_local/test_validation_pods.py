"""Valid fields of a new pod."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from phalanx_local.validation import validate

Obj = dict[str, Any]


def pod(container: Obj | None = None, **spec: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"containers": [{"name": "c", "image": "i", **(container or {})}], **spec},
    }


def complaints(obj: Obj) -> list[str]:
    return [str(error) for error in validate("", "Pod", obj, None)]


FULL = pod(
    {
        "command": ["sh"],
        "ports": [{"name": "http", "containerPort": 80, "hostPort": 8080, "protocol": "TCP"}],
        "env": [
            {"name": "A", "value": "1"},
            {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['x']"}}},
            {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "D", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ],
        "envFrom": [{"configMapRef": {"name": "c"}}],
        "resources": {
            "requests": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi"},
            "limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi"},
            "claims": [{"name": "gpu"}],
        },
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "livenessProbe": {"httpGet": {"path": "/", "port": "http"}},
        "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
    },
    initContainers=[{"name": "side", "image": "i", "restartPolicy": "Always"}],
    volumes=[
        {"name": "v", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "w", "hostPath": {"path": "/x"}},
        {"name": "p", "projected": {"sources": [{"configMap": {"name": "c"}}]}},
    ],
    resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}],
    restartPolicy="Never",
    nodeSelector={"zone": "a"},
    affinity={
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}}
            ],
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        },
    },
    tolerations=[
        {"operator": "Exists"},
        {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
        {"key": "x", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3},
    ],
    topologySpreadConstraints=[
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"a": "b"}},
            "minDomains": 2,
        }
    ],
    schedulingGates=[{"name": "example.com/quota"}],
    overhead={"cpu": "10m"},
    schedulerName="phalanx",
    schedulingGroup={"podGroupName": "g"},
    priority=5,
    preemptionPolicy="Never",
    activeDeadlineSeconds=60,
    dnsConfig={"nameservers": ["10.0.0.10"]},
    hostAliases=[{"ip": "10.0.0.1", "hostnames": ["h"]}],
    securityContext={"runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
)


def test_a_pod_with_everything_is_fine() -> None:
    before = copy.deepcopy(FULL)
    assert complaints(FULL) == []
    assert before == FULL


CONTAINER = [
    ({"name": ""}, "spec.containers[0].name: Required value"),
    ({"name": "A"}, 'spec.containers[0].name: Invalid value: "A": a lowercase RFC 1123 label'),
    ({"image": ""}, "spec.containers[0].image: Required value"),
    ({"image": " i"}, "must not have leading or trailing whitespace"),
    (
        {"imagePullPolicy": "Maybe"},
        'Unsupported value: "Maybe": supported values: "Always", "IfNotPresent", "Never"',
    ),
    ({"terminationMessagePolicy": "X"}, "spec.containers[0].terminationMessagePolicy: Unsupported value"),
    ({"ports": [{"containerPort": 0}]}, "spec.containers[0].ports[0].containerPort: Required value"),
    ({"ports": [{"containerPort": 65536}]}, "must be between 1 and 65535, inclusive"),
    ({"ports": [{"containerPort": 80, "hostPort": -1}]}, "spec.containers[0].ports[0].hostPort: Invalid value: -1"),
    ({"ports": [{"containerPort": 80, "protocol": "ICMP"}]}, 'supported values: "SCTP", "TCP", "UDP"'),
    ({"ports": [{"containerPort": 80, "name": "a" * 16}]}, "must be no more than 15 characters"),
    (
        {"ports": [{"containerPort": 1, "name": "x"}, {"containerPort": 2, "name": "x"}]},
        'spec.containers[0].ports[1].name: Duplicate value: "x"',
    ),
    (
        {"ports": [{"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 9}]},
        'spec.containers[0].ports[1].hostPort: Duplicate value: "TCP//9"',
    ),
    ({"env": [{"name": ""}]}, "spec.containers[0].env[0].name: Required value"),
    ({"env": [{"name": "a=b"}]}, "printable ASCII characters other than '='"),
    ({"env": [{"name": "A", "valueFrom": {}}]}, "must specify one of: `fieldRef`, `resourceFieldRef`"),
    (
        {"env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
        "may not be specified when `value` is not empty",
    ),
    (
        {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.frob"}}}]},
        'Unsupported value: "spec.frob"',
    ),
    ({"envFrom": [{}]}, "must specify one of: `configMapRef` or `secretRef`"),
    ({"volumeMounts": [{"name": "zz", "mountPath": "/x"}]}, 'volumeMounts[0].name: Not found: "zz"'),
    ({"volumeMounts": [{"name": "v"}]}, "volumeMounts[0].mountPath: Required value"),
    (
        {"volumeMounts": [{"name": "v", "mountPath": "/x"}, {"name": "v", "mountPath": "/x"}]},
        'volumeMounts[1].mountPath: Invalid value: "/x": must be unique',
    ),
    ({"volumeMounts": [{"name": "v", "mountPath": "/x", "subPath": "../y"}]}, "must not contain '..'"),
    ({"restartPolicy": "Sometimes"}, "spec.containers[0].restartPolicy: Unsupported value"),
    ({"livenessProbe": {}}, "spec.containers[0].livenessProbe: Required value: must specify a handler type"),
    ({"livenessProbe": {"exec": {"command": ["a"]}, "successThreshold": 2}}, "must be 1"),
    ({"readinessProbe": {"tcpSocket": {"port": 0}}}, "must be between 1 and 65535, inclusive"),
    (
        {"startupProbe": {"exec": {"command": ["a"]}, "httpGet": {"port": 1}}},
        "startupProbe.httpGet: Forbidden: may not specify more than 1 handler type",
    ),
    ({"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}}, "less than terminationGracePeriodSeconds (30)"),
    ({"securityContext": {"runAsUser": -1}}, "must be between 0 and 2147483647, inclusive"),
    ({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "X"}]}, 'Unsupported value: "X"'),
]


@pytest.mark.parametrize(("change", "words"), CONTAINER)
def test_containers_are_checked(change: Obj, words: str) -> None:
    found = complaints(pod(change, volumes=[{"name": "v", "emptyDir": {}}]))
    assert any(words in text for text in found), found


RESOURCES = [
    ({"requests": {"cpu": "-1"}}, 'requests[cpu]: Invalid value: "-1": must be greater than or equal to 0'),
    (
        {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
        'resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
    ),
    (
        {"requests": {"cpu": "1500m"}, "limits": {"cpu": "1"}},
        'Invalid value: "1500m": must be less than or equal to cpu limit of 1',
    ),
    (
        {"requests": {"nvidia.com/gpu": "1"}},
        "resources.limits: Required value: Limit must be set for non overcommitable resources",
    ),
    (
        {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "2"}},
        'Invalid value: "1": must be equal to nvidia.com/gpu limit of 2',
    ),
    ({"limits": {"nvidia.com/gpu": "500m"}}, 'limits[nvidia.com/gpu]: Invalid value: "500m": must be an integer'),
    ({"limits": {"frob": "1"}}, "must be a standard resource type or fully qualified"),
    ({"limits": {"pods": "1"}}, "must be a standard resource for containers"),
    ({"limits": {"a/b/c": "1"}}, "a valid label key must consist of"),
    ({"limits": {"requests.example.com/x": "1"}}, "doesn't follow extended resource name standard"),
    ({"limits": {"hugepages-2Mi": "2Mi"}}, "HugePages require cpu or memory"),
    ({"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}, "3Mi is not positive integer multiple of hugepages-2Mi"),
    (
        {"requests": {"hugepages-2Mi": "2Mi", "cpu": "1"}, "limits": {"hugepages-2Mi": "4Mi"}},
        "must be equal to hugepages-2Mi limit of 4Mi",
    ),
    ({"claims": [{"name": "zz"}]}, 'Not found: "zz": must be one of the names in pod.spec.resourceClaims'),
    ({"claims": [{"name": ""}]}, "claims[0]: Required value"),
]


@pytest.mark.parametrize(("resources", "words"), RESOURCES)
def test_resources_are_checked(resources: Obj, words: str) -> None:
    found = complaints(pod({"resources": resources}))
    assert any(words in text for text in found), found


@pytest.mark.parametrize(
    "resources",
    [
        {"requests": {"cpu": "0"}},
        {"limits": {"example.com/fpga": "3"}},
        {"requests": {"memory": "1.5Gi"}, "limits": {"memory": "1536Mi"}},
        {"requests": {"ephemeral-storage": "1e3"}},
        {"requests": {"kubernetes.io/batch-cpu": "1500m"}},
    ],
)
def test_good_resources_pass(resources: Obj) -> None:
    assert complaints(pod({"resources": resources})) == []


NODE_TERMS = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


def required_node(*terms: Obj) -> Obj:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def expression(**need: Any) -> Obj:
    return required_node({"matchExpressions": [{"key": "zone", **need}]})


SPEC = [
    ({"containers": []}, "spec.containers: Required value"),
    ({"containers": [{"name": "c", "image": "i"}] * 2}, 'spec.containers[1].name: Duplicate value: "c"'),
    ({"restartPolicy": "Frob"}, 'supported values: "Always", "OnFailure", "Never"'),
    ({"dnsPolicy": "Frob"}, "spec.dnsPolicy: Unsupported value"),
    ({"dnsPolicy": "None"}, "must provide `dnsConfig` when `dnsPolicy` is None"),
    ({"nodeSelector": {"a b": "c"}}, "spec.nodeSelector: Invalid value"),
    ({"nodeName": "A_"}, 'spec.nodeName: Invalid value: "A_"'),
    ({"schedulerName": "My Scheduler"}, 'spec.schedulerName: Invalid value: "My Scheduler"'),
    ({"priorityClassName": "A"}, 'spec.priorityClassName: Invalid value: "A"'),
    ({"preemptionPolicy": "X"}, "spec.preemptionPolicy: Unsupported value"),
    ({"activeDeadlineSeconds": 0}, "must be between 1 and 2147483647, inclusive"),
    ({"hostname": "a.b"}, "must not contain dots"),
    ({"overhead": {"cpu": "-1"}}, "must be greater than or equal to 0"),
    ({"os": {"name": "plan9"}}, 'Unsupported value: "plan9"'),
    ({"schedulingGates": [{"name": "a b"}]}, "spec.schedulingGates[0]: Invalid value"),
    ({"schedulingGates": [{"name": "a"}, {"name": "a"}]}, 'spec.schedulingGates[1]: Duplicate value: "a"'),
    (
        {"schedulingGates": [{"name": "a"}], "nodeName": "n"},
        "cannot be set until all schedulingGates have been cleared",
    ),
    (
        {"ephemeralContainers": [{"name": "e", "image": "i"}]},
        "spec.ephemeralContainers: Forbidden: cannot be set on create",
    ),
    ({"resourceClaims": [{"name": "a"}]}, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
    ({"schedulingGroup": {}}, "must specify one of: `podGroupName`"),
    ({"volumes": [{"name": "v"}]}, "spec.volumes[0]: Required value: must specify a volume type"),
    (
        {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]},
        "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
    ),
    ({"volumes": [{"name": "v", "emptyDir": {}}] * 2}, 'spec.volumes[1].name: Duplicate value: "v"'),
    ({"volumes": [{"name": "V", "emptyDir": {}}]}, 'spec.volumes[0].name: Invalid value: "V"'),
    ({"volumes": [{"name": "v", "hostPath": {"path": "/a/.."}}]}, "must not contain '..'"),
    ({"volumes": [{"name": "v", "persistentVolumeClaim": {}}]}, "persistentVolumeClaim.claimName: Required value"),
    # tolerations
    ({"tolerations": [{"operator": "Equal"}]}, "operator must be Exists when `key` is empty"),
    (
        {"tolerations": [{"key": "a", "operator": "Exists", "value": "v"}]},
        "value must be empty when `operator` is 'Exists'",
    ),
    ({"tolerations": [{"key": "a", "operator": "Ge"}]}, 'supported values: "Equal", "Exists", "Gt", "Lt"'),
    ({"tolerations": [{"key": "a", "operator": "Gt", "value": "07"}]}, "must be a valid decimal integer"),
    ({"tolerations": [{"key": "a", "operator": "Lt", "value": str(2**63)}]}, "value out of range"),
    (
        {"tolerations": [{"key": "a", "effect": "Frob"}]},
        'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
    ),
    (
        {"tolerations": [{"key": "a", "tolerationSeconds": 1}]},
        "effect must be 'NoExecute' when `tolerationSeconds` is set",
    ),
    ({"tolerations": [{"key": "a", "value": "b c"}]}, "spec.tolerations[0].operator: Invalid value"),
    # node affinity
    ({"affinity": required_node()}, f"{NODE_TERMS}: Required value: must have at least one node selector term"),
    ({"affinity": expression(operator="In")}, "must be specified when `operator` is 'In' or 'NotIn'"),
    ({"affinity": expression(operator="Exists", values=["a"])}, "may not be specified when `operator` is 'Exists'"),
    ({"affinity": expression(operator="Gt", values=["1", "2"])}, "must be specified single value"),
    ({"affinity": expression(operator="Like")}, "not a valid selector operator"),
    (
        {"affinity": expression(operator="In", values=["b c"])},
        f"{NODE_TERMS}[0].matchExpressions[0].values[0]: Invalid",
    ),
    (
        {"affinity": required_node({"matchFields": [{"key": "spec.x", "operator": "In", "values": ["a"]}]})},
        "not a valid field selector key",
    ),
    (
        {"affinity": required_node({"matchFields": [{"key": "metadata.name", "operator": "In", "values": []}]})},
        "must be only one value when `operator` is 'In' or 'NotIn'",
    ),
    (
        {
            "affinity": {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 101, "preference": {}}]
                }
            }
        },
        "must be in the range 1-100",
    ),
    # pod affinity
    (
        {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
        "topologyKey: Required value: can not be empty",
    ),
    (
        {
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": "z", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "X"}]}}
                    ]
                }
            }
        },
        "not a valid selector operator",
    ),
    (
        {
            "affinity": {
                "podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": "z", "matchLabelKeys": ["a"]}
                    ]
                }
            }
        },
        "must not be specified when labelSelector is not set",
    ),
    # spread
    (
        {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]},
        "must be greater than zero",
    ),
    (
        {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]},
        "topologyKey: Required value: can not be empty",
    ),
    (
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "X"}]},
        'supported values: "DoNotSchedule", "ScheduleAnyway"',
    ),
    (
        {
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]
            * 2
        },
        'Duplicate value: "{z, DoNotSchedule}"',
    ),
    (
        {
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2}
            ]
        },
        "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
    ),
]


@pytest.mark.parametrize(("change", "words"), SPEC)
def test_the_spec_is_checked(change: Obj, words: str) -> None:
    found = complaints(pod(**change))
    assert any(words in text for text in found), found


INIT = [
    ({"restartPolicy": "Frob"}, "spec.initContainers[0].restartPolicy: Unsupported value"),
    (
        {"livenessProbe": {"exec": {"command": ["a"]}}},
        "may not be set for init containers without restartPolicy=Always",
    ),
    ({"lifecycle": {}}, "spec.initContainers[0].lifecycle: Forbidden"),
    ({"name": "c"}, 'spec.initContainers[0].name: Duplicate value: "c"'),
    ({"image": ""}, "spec.initContainers[0].image: Required value"),
]


@pytest.mark.parametrize(("change", "words"), INIT)
def test_init_containers_are_checked(change: Obj, words: str) -> None:
    found = complaints(pod(initContainers=[{"name": "init", "image": "i", **change}]))
    assert any(words in text for text in found), found


def test_sidecars_may_have_probes() -> None:
    sidecar = {
        "name": "s",
        "image": "i",
        "restartPolicy": "Always",
        "startupProbe": {"exec": {"command": ["a"]}},
    }
    assert complaints(pod(initContainers=[sidecar])) == []


def test_host_ports_match_on_the_host_network() -> None:
    ports = [{"containerPort": 80, "hostPort": 81}]
    (text,) = complaints(pod({"ports": ports}, hostNetwork=True))
    assert text == (
        "spec.containers[0].ports[0].hostPort: Invalid value: 81: "
        "must match `containerPort` when `hostNetwork` is true"
    )


def test_resources_of_the_pod_as_a_whole_cover_its_containers() -> None:
    def whole(requests: Obj, container: Obj) -> list[str]:
        return complaints(pod({"resources": container}, resources={"requests": requests, "limits": {"cpu": "4"}}))

    assert whole({"cpu": "2"}, {"requests": {"cpu": "1"}}) == []
    (text,) = whole({"cpu": "500m"}, {"requests": {"cpu": "1"}})
    assert "must be greater than or equal to aggregate container requests of 1" in text
    (text,) = whole({"cpu": "2"}, {"limits": {"cpu": "5"}})
    assert "must be less than or equal to pod limits of 4" in text
    assert any("Unsupported value" in text for text in whole({"nvidia.com/gpu": "1"}, {}))


def test_a_mirror_pod_names_its_node() -> None:
    obj = pod()
    obj["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert "must set spec.nodeName if mirror pod annotation is set" in complaints(obj)[0]


@pytest.mark.parametrize(
    ("cost", "good"), [("5", True), ("-5", True), ("x", False), ("05", False), ("3000000000", False)]
)
def test_the_deletion_cost_is_a_number(cost: str, good: bool) -> None:
    obj = pod()
    obj["metadata"]["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": cost}
    assert (complaints(obj) == []) == good


def test_one_bad_field_does_not_hide_another() -> None:
    found = complaints(pod({"name": "A", "image": ""}, restartPolicy="X", nodeName="_"))
    assert [text.partition(":")[0] for text in found] == [
        "spec.containers[0].name",
        "spec.containers[0].image",
        "spec.restartPolicy",
        "spec.nodeName",
    ]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"kind": "Node", "name": "n"}, None),
        ({"name": "n"}, None),
        ({}, "target.name: Required value"),
        (
            {"kind": "Pod", "name": "n"},
            'target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"',
        ),
    ],
)
def test_a_binding_names_a_node(target: Obj, words: str | None) -> None:
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": target}
    assert [str(error) for error in validate("", "Binding", body, None)] == ([words] if words else [])
