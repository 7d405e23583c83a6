"""Every field of a pod's request is known: honoured, not for schedulers, or refused by name.

The list of fields is from the tables of the embedded API server. A field of a newer API makes these tests fail
until its treatment is decided.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.dialects import core
from phalanx_local.validation.kinds import struct_type
from tests.differential.ours import Ours
from tests.differential.tables.notation import one
from tests.forgotten.test_proofs import functions_in

VERDICTS = "differential/test_verdicts.py::test_one_rule_at_a_time"
TABLES = "differential/test_tables.py::test_we_agree"

# field -> the test that proves that scheduling honours it.
HONOURED = {
    "affinity": VERDICTS,
    "containers": VERDICTS,
    "hostNetwork": VERDICTS,  # its ports are the host's; with hostUsers it needs a feature
    "hostUsers": VERDICTS,
    "initContainers": VERDICTS,
    "nodeName": "scheduling/test_what_occupies_nodes.py::test_pods_of_other_schedulers_occupy_their_nodes",
    "nodeSelector": VERDICTS,
    "overhead": TABLES,
    "preemptionPolicy": "scheduling/test_preempt.py::test_pod_with_preemption_policy_never_evicts_no_pod",
    "priority": "e2e/test_gangs.py::test_gang_of_higher_priority_is_scheduled_first",
    "priorityClassName": "dialects/test_evictability.py::test_system_pods_of_the_cluster_are_critical",
    "resourceClaims": VERDICTS,
    "resources": TABLES,
    "schedulerName": "e2e/test_gangs.py::test_pods_of_other_schedulers_take_room_and_are_not_touched",
    "schedulingGates": "e2e/test_gangs.py::test_gated_members_wait_for_their_gates_and_are_left_alone",
    "schedulingGroup": "dialects/test_native.py::test_member_waits_for_its_group_whatever_the_policy",
    "terminationGracePeriodSeconds": "dialects/test_evictability.py::test_pod_has_its_stated_grace_period",
    "tolerations": VERDICTS,
    "topologySpreadConstraints": VERDICTS,
    "volumes": VERDICTS,
    "workloadRef": "dialects/test_native.py::test_replicas_of_a_workload_are_separate_gangs",
}

# field -> why no node is better or worse for it.
NOT_FOR_SCHEDULERS = {
    "activeDeadlineSeconds": "the kubelet counts",
    "automountServiceAccountToken": "a volume that every node can make",
    "dnsConfig": "within the pod",
    "dnsPolicy": "within the pod",
    "enableServiceLinks": "within the pod",
    "ephemeralContainers": "come after the pod runs, and ask for nothing",
    "hostAliases": "within the pod",
    "hostIPC": "every node has it",
    "hostPID": "every node has it",
    "hostname": "within the pod",
    "hostnameOverride": "within the pod",
    "imagePullSecrets": "the kubelet's",
    "os": "the kubelet of another system refuses the pod; kube-scheduler leaves it to node selectors too",
    "readinessGates": "after the pod runs",
    "restartPolicy": "the kubelet's",
    "runtimeClassName": "admission has merged its overhead, selector and tolerations into the pod",
    "securityContext": "the kubelet's",
    "serviceAccount": "identity",
    "serviceAccountName": "identity",
    "setHostnameAsFQDN": "within the pod",
    "shareProcessNamespace": "within the pod",
    "subdomain": "within the pod",
}

CONTAINER = {
    "image": "scheduling/test_node_images.py",
    "ports": VERDICTS,
    "resources": VERDICTS,
    "restartPolicy": VERDICTS,  # sidecars
    "restartPolicyRules": VERDICTS,  # need a feature
}
CONTAINER_IS_THE_KUBELETS = {
    "args",
    "command",
    "env",
    "envFrom",
    "imagePullPolicy",
    "lifecycle",
    "livenessProbe",
    "name",
    "readinessProbe",
    "resizePolicy",
    "securityContext",
    "startupProbe",
    "stdin",
    "stdinOnce",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "tty",
    "volumeDevices",
    "volumeMounts",
    "workingDir",
}


def fields_of(name: str) -> set[str]:
    return set(struct_type("core.v1", name).fields)


def test_every_field_of_a_pod_is_classified() -> None:
    assert not HONOURED.keys() & NOT_FOR_SCHEDULERS.keys()
    assert fields_of("PodSpec") == HONOURED.keys() | NOT_FOR_SCHEDULERS.keys()


def test_every_field_of_a_container_is_classified() -> None:
    assert fields_of("Container") == CONTAINER.keys() | CONTAINER_IS_THE_KUBELETS


@pytest.mark.parametrize("proof", sorted({*HONOURED.values(), *CONTAINER.values()}))
def test_the_proof_is_there(proof: str) -> None:
    path, _, name = proof.partition("::")
    assert name in functions_in(path) if name else functions_in(path)


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("Affinity", core.Affinity),
        ("NodeAffinity", core.NodeAffinity),
        ("NodeSelector", core.NodeSelector),
        ("NodeSelectorTerm", core.SelectorTerm),
        ("NodeSelectorRequirement", core.SelectorRequirement),
        ("PreferredSchedulingTerm", core.PreferredSchedulingTerm),
        ("PodAffinity", core.PodAffinity),
        ("PodAntiAffinity", core.PodAffinity),
        ("PodAffinityTerm", core.PodAffinityTerm),
        ("WeightedPodAffinityTerm", core.WeightedPodAffinityTerm),
        ("TopologySpreadConstraint", core.TopologySpreadConstraint),
        ("Toleration", core.PodToleration),
        ("PodResourceClaim", core.PodResourceClaim),
        ("Volume", core.VolumeObject),
    ],
)
def test_every_field_that_restricts_a_pod_is_known(name: str, wire: type[msgspec.Struct]) -> None:
    """And nothing else is passed over: see below."""
    assert {field.encode_name for field in msgspec.structs.fields(wire)} == fields_of(name)
    assert wire.__struct_config__.forbid_unknown_fields


WEB = {"matchLabels": {"app": "web"}}
TERM: dict[str, Any] = {"topologyKey": "zone", "labelSelector": WEB}
SPREAD: dict[str, Any] = {**TERM, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
LIKE = {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["w*"]}]}


def spread(**more: Any) -> dict[str, Any]:
    return {"topologySpreadConstraints": [{**SPREAD, **more}]}


def affinity(kind: str, rule: object) -> dict[str, Any]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": rule}}}


def node_term(**term: Any) -> dict[str, Any]:
    return affinity("nodeAffinity", {"nodeSelectorTerms": [term]})


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (spread(whenUnsatisfiable="Sometimes"), ("whenUnsatisfiable", "Sometimes")),
        (spread(nodeAffinityPolicy="Maybe"), ("nodeAffinityPolicy", "Maybe")),
        (spread(nodeTaintsPolicy="Maybe"), ("nodeTaintsPolicy", "Maybe")),
        (spread(minPods=3), ("topologySpreadConstraints[0].minPods",)),
        (spread(labelSelector=LIKE), ("unknown operator 'Like'",)),
        (affinity("podAffinity", [{**TERM, "labelSelector": LIKE}]), ("unknown operator 'Like'",)),
        (affinity("podAntiAffinity", [{**TERM, "olderThan": "1h"}]), ("podAntiAffinity", "olderThan")),
        (affinity("volumeAffinity", []), ("spec.affinity.volumeAffinity",)),
        ({"affinity": {"podAffinity": {"requiredAllTheTime": [TERM]}}}, ("podAffinity.requiredAllTheTime",)),
        (node_term(matchMoods=[{"key": "zone"}]), ("nodeSelectorTerms[0].matchMoods",)),
        (node_term(**LIKE), ("unknown operator 'Like'",)),
        (node_term(matchFields=[{"key": "metadata.uid", "operator": "In", "values": ["1"]}]), ("metadata.uid",)),
        ({"volumes": [{"name": "v", "holographic": {}}]}, ("spec.volumes[0].holographic",)),
        ({"tolerations": [{"key": "a", "operator": "Exists", "until": "noon"}]}, ("spec.tolerations[0].until",)),
        ({"resourceClaims": [{"name": "c", "fromTheFuture": "x"}]}, ("spec.resourceClaims[0].fromTheFuture",)),
    ],
)
def test_unknown_field_is_not_ignored(spec: dict[str, Any], words: tuple[str, ...]) -> None:
    case = one("node a zone=1\nnew app=web")
    case.pod["spec"] |= spec
    (verdict,) = Ours.of(case.world).scheduler.cycle(1_800_000_000.0).pods
    assert verdict.verdict is not None
    assert all(word in verdict.verdict.message for word in words), verdict.verdict.message


def test_running_pod_with_an_unknown_field_still_rejects_other_pods() -> None:
    case = one("node a zone=1\npod there on=a ; apart zone app=web\nnew app=web")
    terms = case.world.pods[0]["spec"]["affinity"]["podAntiAffinity"]
    terms["requiredDuringSchedulingIgnoredDuringExecution"][0]["olderThan"] = "1h"
    assert "a" in Ours.of(case.world).verdicts()["new"]


@pytest.mark.parametrize("source", sorted(fields_of("Volume") - {"name"}))
def test_volumes_of_every_kind_can_be_read(source: str) -> None:
    """None of them makes a pod unreadable; whether it has a node is another question."""
    case = one("node a\nnew")
    case.pod["spec"]["volumes"] = [{"name": "v", source: {}}]
    ours = Ours.of(case.world)
    assert not any("does not know" in why for reasons in ours.verdicts()["new"].values() for why in reasons)
