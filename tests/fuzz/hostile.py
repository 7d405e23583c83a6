"""Objects of a malicious user: valid ones, with parts replaced by unexpected values.

All choices are drawn from one `Random`, so that a seed reproduces a failure.
"""

from __future__ import annotations

import ast
import re
from copy import deepcopy
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import phalanx.dialects
from phalanx.dialects.kinds import ServedKind
from tests.dialects.objects import (
    KUBE_BATCH,
    NATIVE,
    NATIVE_1_36,
    PROFILE,
    QUOTA,
    QUOTA_TREE,
    SIGS,
    SIGS_QUOTA,
    VOLCANO,
    VOLCANO_QUEUE,
    WORKLOAD,
    X_K8S,
    pod_document,
)

LONG = "9" * 5_000
DEEP = "[" * 3_000 + "]" * 3_000
TEXTS = (
    *(
        "",
        " ",
        "0",
        "1",
        "2",
        "-1",
        "+7",
        "007",
        "1.5",
        ".",
        "true",
        "false",
        "null",
        "nan",
        "inf",
        "-inf",
        "1e999",
    ),
    *(LONG, "-" + LONG, "1e" + LONG, "0." + LONG, LONG + "h", "1h" * 2_000, "99999999h", "1e18s", "0x10", "1_0"),
    *(
        "٧",
        "²",
        "½",
        "\x00",
        "\x7f",
        "\ufffd",
        "\U0001f984",
        "é" * 300,
        "a" * 70_000,
        "a\nb",
        "\u202e",
        "../..",
        "/",
    ),
    *(
        "a/b/c",
        "-a",
        "a-",
        "A.b_c",
        "hard",
        "soft",
        "10m",
        "50%",
        "500%",
        "1Gi",
        "9Ei",
        "9E",
        "100000000000E",
        "1e60",
    ),
    *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2024-01-31", "2024-13-01T00:00:00Z", "24:00"),
    *(
        DEEP,
        '{"a":' * 3_000,
        "[" * 150 + "]" * 150,
        '{"cpu": ' + LONG + "}",
        '{"cpu": "1", "memory": -1}',
        "[1",
        "{}",
    ),
    *('["a","b"]', '["default/g","default/h"]', '{"window":"1h","hours":{"cpu":"1"}}', '{"gpu":[{"minor":1e3}]}'),
    *("(a+)+$", "(", "[[:x:]]", "0-99999,5-1", "a,b,c;d:e", "1/2/3", "root/a/b", "team", "g", "h", "phalanx"),
)


def _deep(levels: int) -> Any:
    value: Any = "x"
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        7,
        2**31,
        -(2**31) - 1,
        2**53 + 1,
        2**63,
        -(2**63),
        10**30,
        10**300,
        -(10**4_000),
    ),
    *(0.5, -0.0, 1e308, 5e-324, [], {}, [[]], [None], [{}], {"": None}, {"a": {}}, _deep(40), _deep(150)),
    *([1, "a", None, {}], ["a"] * 500, {f"k{number}": "v" for number in range(300)}),
)


@cache
def _words() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(keys of annotations and labels, names of fields) that the readers know, as they stand in their source."""
    keys, fields = set(), set()
    for path in Path(next(iter(phalanx.dialects.__path__))).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if re.fullmatch(r"[-a-z0-9.]+\.[a-z]+/[-A-Za-z0-9_.]+", node.value):
                    keys.add(node.value)
                elif re.fullmatch(r"[a-z][A-Za-z]{2,40}", node.value):
                    fields.add(node.value)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                first, *rest = node.target.id.split("_")
                fields.add(first + "".join(part.capitalize() for part in rest))
    return tuple(sorted(keys)), tuple(sorted(fields))


def value(rng: Random) -> Any:
    if rng.random() < 0.6:
        return rng.choice(TEXTS)
    if rng.random() < 0.8:
        return deepcopy(rng.choice(VALUES))
    return {rng.choice(_words()[1]): value(rng) for _ in range(rng.randrange(4))}


def notes(rng: Random, most: int = 4) -> dict[str, Any]:
    keys = _words()[0]
    return {rng.choice(keys): rng.choice(TEXTS) for _ in range(rng.randrange(most + 1))}


def mutated(rng: Random, document: Any, most: int = 3) -> Any:
    """Return an object with up to `count` places replaced, removed, doubled or extended."""
    for _ in range(rng.randrange(most + 1)):
        place, key = _place(rng, document)
        match rng.randrange(5):
            case 0 if isinstance(place, dict):
                place.pop(key, None)
            case 1 if isinstance(place, dict):
                place[rng.choice(_words()[1])] = value(rng)
            case 2 if isinstance(place, list):
                place.append(place[0] if place else value(rng))
            case _:
                if isinstance(place, dict) or (isinstance(place, list) and place):
                    place[key] = value(rng)
    return document


def _place(rng: Random, document: Any) -> tuple[Any, Any]:
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return place, 0 if isinstance(place, list) else "spec"
        key = rng.choice(keys)
        if not isinstance(place[key], dict | list) or rng.random() < 0.15:
            return place, key
        place = place[key]


# Valid objects before mutation.

NAMES = ("a", "b", "c", "d")
NAMESPACE = "team"
_TERM = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
_NODE_TERM = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]}


def pod(rng: Random) -> dict[str, Any]:
    name = rng.choice(NAMES)
    resources = {"requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}, "limits": {"cpu": "2"}}
    container = {
        "name": "main",
        "resources": resources,
        "ports": [{"hostPort": 80, "containerPort": 80}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    spec: dict[str, Any] = {
        "initContainers": [{**container, "name": "init", "restartPolicy": "Always"}],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 3}],
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _NODE_TERM},
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [dict(_TERM)]},
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "podAffinityTerm": dict(_TERM)}]
            },
        },
        "topologySpreadConstraints": [
            {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2, **_TERM},
        ],
        "volumes": [
            {"name": "v", "persistentVolumeClaim": {"claimName": rng.choice(NAMES)}},
            {"name": "w", "csi": {"driver": "d"}},
        ],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": rng.choice(NAMES)}],
        "overhead": {"cpu": "10m"},
        "priority": 5,
        "schedulingGates": [],
        "terminationGracePeriodSeconds": 30,
        "preemptionPolicy": "Never",
        "schedulingGroup": {"podGroupName": rng.choice(NAMES)},
    }
    for field in rng.sample(sorted(spec), rng.randrange(len(spec))):
        del spec[field]
    return pod_document(
        name,
        namespace=NAMESPACE,
        labels=notes(rng, 2),
        annotations=notes(rng),
        node=rng.choice(("", "good", "n1", "nowhere")),
        phase=rng.choice(("Pending", "Running", "Succeeded", "Odd")),
        terminating=rng.random() < 0.1,
        containers=[container],
        status={"conditions": [{"type": "PodScheduled", "status": "False"}], "startTime": "2026-01-01T00:00:00Z"},
        **spec,
    )


def node(rng: Random) -> dict[str, Any]:
    return {
        "metadata": {
            "name": rng.choice(("n1", "n2")),
            "uid": "u",
            "labels": {"disk": "ssd", **notes(rng, 2)},
            "annotations": notes(rng),
        },
        "spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}], "unschedulable": False},
        "status": {
            "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "2"},
            "capacity": {"cpu": "8", "volcano.sh/gpu-number": "2", "volcano.sh/gpu-memory": "20"},
            "images": [{"names": ["busybox"], "sizeBytes": 1000}],
        },
    }


SPECS: dict[ServedKind, dict[str, Any]] = {
    **{
        kind: {
            "minMember": 2,
            "minTaskMember": {"a": 1},
            "queue": "q",
            "priorityClassName": "high",
            "minResources": {"cpu": "2"},
            "scheduleTimeoutSeconds": 30,
            "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
            "subGroupPolicy": [{"name": "w", "subGroupSize": 2, "matchLabelKeys": ["k"], "labelSelector": {}}],
        }
        for kind in (X_K8S, SIGS, VOLCANO, KUBE_BATCH)
    },
    **{
        kind: {
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "schedulingConstraints": {"topology": [{"key": "rack"}]},
            "disruptionMode": {"all": {}},
            "priority": 3,
            "parentCompositePodGroupName": "c",
        }
        for kind in (NATIVE, NATIVE_1_36)
    },
    WORKLOAD: {"podGroups": [{"name": "a", "policy": {"gang": {"minCount": 2}}}], "controllerRef": {"name": "j"}},
    VOLCANO_QUEUE: {
        "weight": 1,
        "parent": "p",
        "capability": {"cpu": "4"},
        "deserved": {"cpu": "2"},
        "guarantee": {"resource": {"cpu": "1"}},
        "affinity": {"nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["g"]}},
    },
    **{kind: {"min": {"cpu": "1"}, "max": {"cpu": "4"}} for kind in (QUOTA, SIGS_QUOTA)},
    QUOTA_TREE: {
        "root": {
            "name": "root",
            "min": {"cpu": "4"},
            "max": {"cpu": "8"},
            "children": [{"name": "x", "min": {"cpu": "1"}, "max": {"cpu": "8"}, "namespaces": [NAMESPACE]}],
        }
    },
    PROFILE: {"quotaName": "q", "nodeSelector": {"matchLabels": {"disk": "ssd"}}, "resourceRatio": "0.5"},
}
ENRICHED: dict[str, dict[str, Any]] = {
    "HyperNode": {"tier": 1, "members": [{"type": "Node", "selector": {"regexMatch": {"pattern": "n.*"}}}]},
    "Numatopology": {
        "policies": {"TopologyManagerPolicy": "single-numa-node"},
        "numares": {"cpu": {"allocatable": "0-7"}},
    },
    "Device": {
        "devices": [{"type": "gpu", "minor": 0, "health": True, "resources": {"koordinator.sh/gpu-core": "100"}}]
    },
    "PersistentVolumeClaim": {
        "storageClassName": "late",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": "",
    },
    "PersistentVolume": {
        "capacity": {"storage": "1Gi"},
        "claimRef": {"namespace": NAMESPACE, "name": "a"},
        "nodeAffinity": {"required": _NODE_TERM},
        "csi": {"driver": "d", "volumeHandle": "h"},
    },
    "CSINode": {"drivers": [{"name": "d", "nodeID": "n1", "topologyKeys": ["z"], "allocatable": {"count": 3}}]},
    "ResourceClaim": {
        "devices": {
            "requests": [
                {"name": "r", "exactly": {"deviceClassName": "a", "count": 1, "allocationMode": "ExactCount"}}
            ],
            "constraints": [{"requests": ["r"], "matchAttribute": "d/x"}],
        }
    },
    "DeviceClass": {"selectors": [{"cel": {"expression": "device.driver == 'd'"}}]},
    "ResourceSlice": {
        "driver": "d",
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "g0", "attributes": {"x": {"int": 1}}, "capacity": {"memory": {"value": "1Gi"}}}],
    },
    "CompositePodGroup": {"schedulingPolicy": {"gang": {"minGroupCount": 1}}},
}


def custom(rng: Random, kind: ServedKind, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {
            "name": rng.choice(NAMES),
            "namespace": NAMESPACE,
            "uid": "u",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": notes(rng, 2),
            "annotations": notes(rng),
        },
        "spec": deepcopy(spec),
        "status": {"phase": "Pending", "conditions": [], rng.choice(_words()[1]): value(rng)},
        **({} if rng.random() < 0.9 else {key: deepcopy(each) for key, each in spec.items()}),
    }
