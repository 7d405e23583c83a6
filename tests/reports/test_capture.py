"""`phalanx capture`: data that it exports, and data that it never exports."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import phalanx.dialects
from phalanx.dialects.core import decode_node, decode_pod
from phalanx.dialects.intake import Intake
from phalanx.dialects.pods.evictability import condemned_by
from phalanx.dialects.registry import installed_dialects
from phalanx.model.eviction_condition import EVICTION, eviction_fields
from phalanx.reports.capture.captured_kinds import ANNOTATIONS, KINDS, captured
from phalanx.reports.capture.writing import encode_capture
from phalanx.simulation.capture import Capture
from phalanx.simulation.cluster import read_cluster
from phalanx.simulation.inputs import read_inputs

SECRET = "s3cr3t"
KEY = re.compile(r"[a-z0-9.-]+\.[a-z]+/[A-Za-z0-9._-]+")
# Keys of labels, of resources and of nodes' places, and names of drivers and types: no annotations that are read.
NO_ANNOTATIONS = re.compile(
    r"kubernetes\.io/(aws-ebs|azure-.*|cinder|gce-pd|no-provisioner|portworx.*|vsphere.*|hostname)"
    r"|cloud\.google\.com/scheduled-maintenance-time|failure-domain\..*|topology\.kubernetes\.io/.*|resource\.kubernetes\.io/admin-access"
    r"|(nvidia|amd|dcu)\.com/gpu|koordinator\.sh/gpu.*|grove\.io/podgang|ray\.io/.*|phalanx\.dev/(AdmissionWithdrawn|Admitted|Eviction|LastVerdict|held-room|origin|queue|when-lost)"
    r"|yunikorn\.apache\.org/app-id|quota\.scheduling\.koordinator\.sh/name|scheduling\.x-k8s\.io/pod-group"
    r"|kubectl\.kubernetes\.io/last-applied-configuration|leaderworkerset\.sigs\.k8s\.io/name"
    r"|jobset\.sigs\.k8s\.io/jobset-(name|uid)|sparkoperator\.k8s\.io/app-name"
)


def poisoned_metadata(**more: Any) -> dict[str, Any]:
    return {
        "name": "x",
        "namespace": "a",
        "uid": "u1",
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": f'{{"env": "{SECRET}"}}',
            "example.com/token": SECRET,
            "volcano.sh/preemptable": "false",
        },
        "managedFields": [{"manager": SECRET}],
        "finalizers": [f"example.com/{SECRET}"],
        "selfLink": SECRET,
        **more,
    }


def poisoned_pod() -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "command": ["sh", "-c", SECRET],
        "args": [SECRET],
        "workingDir": SECRET,
        "env": [
            {"name": "TOKEN", "value": SECRET},
            {"name": SECRET, "valueFrom": {"secretKeyRef": {"name": SECRET}}},
        ],
        "envFrom": [{"secretRef": {"name": SECRET}}],
        "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
        "livenessProbe": {"httpGet": {"path": SECRET, "httpHeaders": [{"name": "a", "value": SECRET}]}},
        "resources": {"requests": {"cpu": "4"}, "limits": {"nvidia.com/gpu": "1"}},
        "terminationMessagePath": SECRET,
        "volumeMounts": [{"name": "v", "mountPath": SECRET}],
    }
    return {
        "metadata": poisoned_metadata(labels={"app": "x"}, generateName=f"{SECRET}-"),
        "spec": {
            "schedulerName": "phalanx",
            "activeDeadlineSeconds": 60,
            "containers": [container],
            "initContainers": [container],
            "ephemeralContainers": [container],
            "imagePullSecrets": [{"name": SECRET}],
            "serviceAccountName": SECRET,
            "hostAliases": [{"ip": "1.2.3.4", "hostnames": [SECRET]}],
            "hostname": SECRET,
            "dnsConfig": {"searches": [SECRET]},
            "securityContext": {"sysctls": [{"name": "a", "value": SECRET}]},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "volumes": [
                {"name": "v", "secret": {"secretName": SECRET}},
                {"name": "w", "configMap": {"name": SECRET}},
                {"name": "c", "csi": {"driver": "d", "volumeAttributes": {"password": SECRET}}},
                {"name": "p", "projected": {"sources": [{"secret": {"name": SECRET}}]}},
                {"name": "h", "hostPath": {"path": SECRET}},
                {"name": "i", "iscsi": {"iqn": "iqn.1", "secretRef": {"name": SECRET}, "targetPortal": SECRET}},
                {"name": "r", "rbd": {"image": "i", "pool": "p", "user": SECRET, "keyring": SECRET}},
                {"name": "e", "ephemeral": {"volumeClaimTemplate": {"metadata": {"annotations": {"a": SECRET}}}}},
                {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
            ],
        },
        "status": {
            "phase": "Running",
            "message": SECRET,
            "reason": SECRET,
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Ready", "status": "False", "reason": SECRET, "message": SECRET},
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "PreemptionByScheduler",
                    "message": f"phalanx: makes room for {SECRET}",
                },
                {
                    "type": EVICTION,
                    "status": "True",
                    "reason": "Preempted",
                    "message": f'{{"scheduler":"phalanx","preemptor":"{SECRET}","why":"{SECRET}"}}',
                },
            ],
            "containerStatuses": [
                {
                    "name": "main",
                    "state": {"terminated": {"message": SECRET}},
                    "imageID": SECRET,
                    "containerID": SECRET,
                }
            ],
        },
    }


def poisoned_everywhere(value: object) -> object:
    """A secret under every key that could have one, at every level of an object that is allowed."""
    return {
        "unknownField": SECRET,
        "template": {"spec": poisoned_pod()["spec"]},
        **(value if isinstance(value, dict) else {}),
    }


def test_capture_omits_secrets_of_a_pod_and_contains_all_planning_fields() -> None:
    kept = captured("v1", "Pod", poisoned_pod())
    assert SECRET not in repr(kept)
    pod = decode_pod(msgspec.json.encode(kept))
    assert not pod.faults
    assert (
        pod.spec.containers[0].resources
        == decode_pod(msgspec.json.encode(poisoned_pod())).spec.containers[0].resources
    )
    assert pod.spec.active_deadline_seconds == 60
    assert pod.metadata.annotations == {"volcano.sh/preemptable": "false"}
    assert [volume.name for volume in pod.spec.volumes] == list("vwcphired")
    assert pod.status.conditions[2].message == ""
    own = pod.status.conditions[3]
    assert (own.type, own.reason, own.message) == (EVICTION, "Preempted", eviction_fields("phalanx"))
    assert condemned_by(pod) == "phalanx"


def test_pod_has_equal_meaning_before_and_after_the_capture() -> None:
    """Fields without influence on planning are exempt."""
    whole, kept = (
        Intake(("phalanx",), dialects=installed_dialects()).pod(decode_pod(msgspec.json.encode(document)))
        for document in (poisoned_pod(), captured("v1", "Pod", poisoned_pod()))
    )
    assert whole == kept


def test_no_secret_of_a_node_leaves_the_cluster() -> None:
    node = {
        "metadata": poisoned_metadata(labels={"rack": "r1"}),
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}], "providerID": SECRET, "podCIDR": SECRET},
        "status": {
            "allocatable": {"cpu": "8"},
            "capacity": {"cpu": "8"},
            "addresses": [{"type": "Hostname", "address": SECRET}],
            "nodeInfo": {"machineID": SECRET},
            "conditions": [{"type": "Ready", "status": "True", "message": SECRET}],
            "config": {"error": SECRET},
        },
    }
    kept = captured("v1", "Node", node)
    assert SECRET not in repr(kept)
    found = decode_node(msgspec.json.encode(kept))
    assert (found.status.allocatable, found.metadata.labels) == ({"cpu": "8"}, {"rack": "r1"})


def test_unnamed_fields_of_any_kind_are_omitted() -> None:
    for kind in [*KINDS, "SomethingElse"]:
        document = {
            "metadata": poisoned_metadata(),
            "spec": poisoned_everywhere({"nested": {"deep": [{"text": SECRET}]}}),
            "status": poisoned_everywhere({"message": SECRET}),
            "data": {"password": SECRET},
            "parameters": {"token": SECRET},
            "config": [{"opaque": {"parameters": {"key": SECRET}}}],
        }
        assert SECRET not in repr(captured("example/v1", kind, document)), kind


def test_groups_queues_and_claims_retain_the_fields_that_are_read() -> None:
    group = {"spec": {"minMember": 4, "queue": "q", "minResources": {"cpu": "4"}, "secretField": SECRET}}
    kept = captured("scheduling.volcano.sh/v1beta1", "PodGroup", {"metadata": poisoned_metadata(), **group})
    assert kept["spec"] == {"minMember": 4, "queue": "q", "minResources": {"cpu": "4"}}
    queue = {"spec": {"weight": 2, "capability": {"cpu": "8"}, "extendClusters": [{"name": SECRET}]}}
    kept = captured("scheduling.volcano.sh/v1beta1", "Queue", {"metadata": {"name": "q"}, **queue})
    assert kept["spec"] == {"weight": 2, "capability": {"cpu": "8"}}
    claim = {"spec": {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "gpu"}}],
                                  "config": [{"opaque": {"parameters": {"key": SECRET}}}]}}}  # fmt: skip
    kept = captured("resource.k8s.io/v1", "ResourceClaim", {"metadata": {"name": "c"}, **claim})
    asked = [{"name": "g", "exactly": {"deviceClassName": "gpu"}}]
    assert kept["spec"] == {"devices": {"requests": asked, "config": [{}]}}


def test_suspension_and_failed_indexes_of_owners_are_retained() -> None:
    spec = {"suspend": True, "mainApplicationFile": SECRET}
    for kind in ("Job", "JobSet", "RayCluster", "RayJob", "SparkApplication"):
        assert captured("example/v1", kind, {"metadata": {"name": "a"}, "spec": spec})["spec"] == {"suspend": True}
    job = captured("batch/v1", "Job", {"metadata": {"name": "a"}, "status": {"failedIndexes": "1,3-5"}})
    assert job["status"] == {"failedIndexes": "1,3-5"}


def test_every_annotation_that_a_dialect_asks_for_is_kept() -> None:
    """This covers future annotations: a new one has to be declared exportable or not in `captured_kinds`."""
    asked: set[str] = set()

    def look(value: object) -> None:
        if isinstance(value, str) and KEY.fullmatch(value):
            asked.add(value)
        elif isinstance(value, tuple | frozenset | set | list):
            for each in value:
                look(each)
        elif isinstance(value, dict):
            look(list(value))

    for module in pkgutil.walk_packages(phalanx.dialects.__path__, "phalanx.dialects."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if not name.startswith("__"):
                look(value)
    assert {key for key in asked - ANNOTATIONS if not NO_ANNOTATIONS.fullmatch(key)} == set()


def test_capture_of_one_cluster_is_deterministic_and_readable() -> None:
    documents = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n1"},
            "status": {"allocatable": {"cpu": "8"}},
        },
        captured("v1", "Pod", poisoned_pod()),
    ]
    capture = Capture(1_767_225_600, missing=("secrets.core: forbidden",))
    assert encode_capture(capture, documents, packed=True) == encode_capture(capture, documents, packed=True)
    read = read_cluster(encode_capture(capture, documents, packed=False).decode(), "c.json")
    assert (read.capture, read.start, len(read.entries)) == (capture, 1_767_225_600, 2)


POLICY = 'actions: "allocate"\ntiers: [{plugins: [{name: gang}, {name: predicates}]}]\n'


@pytest.mark.parametrize(("policy", "name"), [(POLICY, "captured"), ("", "built-in")])
def test_simulation_of_a_capture_uses_the_policy_of_its_scheduler(tmp_path: Path, policy: str, name: str) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "8"}}}
    documents = [node, captured("v1", "Pod", poisoned_pod())]
    capture = Capture(1_767_225_600, policy=policy)
    (tmp_path / "cluster.json").write_bytes(encode_capture(capture, documents, packed=False))
    inputs = read_inputs(str(tmp_path / "cluster.json"), 0, [], [], [1], None)
    (used,) = inputs.policies
    assert used.name == name
    assert not policy or used.text == policy
