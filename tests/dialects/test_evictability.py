"""Eviction settings of pods: readable ones apply, and unreadable ones protect."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.dialects.core import decode_pod
from phalanx.dialects.intake import Intake
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.pods.decoder import PodDecoder
from phalanx.dialects.times import format_time
from phalanx.model.events import PodUpdated
from phalanx.model.pod import Pod
from tests.dialects.objects import EPOCH, decode, pod, pod_document

PREEMPTABLE, COOLDOWN = "volcano.sh/preemptable", "volcano.sh/cooldown-time"
CHECKPOINT = "phalanx.dev/checkpointed-at"


def read_pod(**details: Any) -> Pod:
    decoder, read = PodDecoder(), pod(**details)
    return decoder.pod(read, decoder.template(read), "")


def scheduled(status: str = "True", since: int | None = EPOCH + 5) -> dict[str, Any]:
    time = None if since is None else format_time(since)
    return {"type": "PodScheduled", "status": status, "lastProbeTime": None, "lastTransitionTime": time}


def told(door: Intake) -> list[str]:
    return [f"{notice.reason}: {notice.message}" for notice in door.drain_warnings()]


# Start of a pod.


def test_run_time_counts_from_the_kubelets_start_and_binding_from_the_scheduled_condition() -> None:
    status = {"startTime": format_time(EPOCH + 9), "conditions": [scheduled()]}
    found = read_pod(node="n1", phase="Running", status=status)
    assert (found.started, found.bound) == (EPOCH + 9, EPOCH + 5)


@pytest.mark.parametrize("conditions", [[], [scheduled("False")], [scheduled(since=None)]])
def test_pod_bound_without_a_scheduler_is_bound_since_its_start(conditions: list[dict[str, Any]]) -> None:
    status = {"startTime": format_time(EPOCH + 9), "conditions": conditions}
    assert read_pod(node="n1", status=status).bound == EPOCH + 9


def test_pod_without_a_node_is_not_bound_whatever_its_status() -> None:
    found = read_pod(status={"conditions": [scheduled()]})
    assert (found.started, found.bound) == (0, 0)


def test_null_times_are_unknown_and_no_fault() -> None:
    read = decode(pod_document(node="n1", status={"startTime": None, "conditions": [scheduled(since=None)]}))
    decoder = PodDecoder()
    found = decoder.pod(read, decoder.template(read), "")
    assert (read.faults, found.started, found.bound) == ((), 0, 0)


# End of a pod.


def test_pod_without_a_grace_period_has_half_a_minute() -> None:
    assert (read_pod().grace, read_pod().leaves) == (30, 0)


@pytest.mark.parametrize(("stated", "given"), [(0, 0), (600, 600), (-1, 1), (None, 30), (10**30, 2**31 - 1)])
def test_pod_has_its_stated_grace_period(stated: int | None, given: int) -> None:
    assert read_pod(terminationGracePeriodSeconds=stated).grace == given


def test_terminating_pod_ends_when_its_grace_period_is_over() -> None:
    document = pod_document(node="n1", terminationGracePeriodSeconds=600)
    document["metadata"] |= {"deletionTimestamp": format_time(EPOCH + 50), "deletionGracePeriodSeconds": 5}
    decoder, read = PodDecoder(), decode(document)
    found = decoder.pod(read, decoder.template(read), "")
    assert (found.terminating, found.leaves, found.grace) == (True, EPOCH + 50, 5)


# Settings of the owner.


@pytest.mark.parametrize("place", ["annotations", "labels"])
@pytest.mark.parametrize(
    ("value", "answer"), [("true", True), ("1", True), ("false", False), ("False", False), ("0", False)]
)
def test_owner_can_forbid_the_eviction_of_a_pod(place: str, value: str, answer: bool) -> None:
    assert read_pod(**{place: {PREEMPTABLE: value}}).preemptable is answer


def test_pod_without_settings_is_evictable() -> None:
    assert read_pod().preemptable


def test_annotation_precedes_the_label() -> None:
    assert not read_pod(annotations={PREEMPTABLE: "false"}, labels={PREEMPTABLE: "true"}).preemptable
    assert read_pod(annotations={PREEMPTABLE: "true"}, labels={PREEMPTABLE: "false"}).preemptable


@pytest.mark.parametrize("value", ["no", "", "FALSE "])
def test_unreadable_setting_forbids_eviction_and_is_reported(value: str) -> None:
    door = Intake(["phalanx"])
    (event,) = door.pod(pod(annotations={PREEMPTABLE: value}))
    assert isinstance(event, PodUpdated)
    assert not event.pod.preemptable
    assert not event.pod.problem
    assert told(door) == [
        f'InvalidAnnotation: metadata.annotations[{PREEMPTABLE}]: {value!r} is not "true" or "false"; '
        "it forbids eviction"
    ]


@pytest.mark.parametrize(("value", "seconds"), [("90s", 90), ("1h", 3600), ("1.5s", 2), ("0", 0)])
def test_pod_can_have_a_cooldown(value: str, seconds: int) -> None:
    assert read_pod(labels={COOLDOWN: value}).cooldown == seconds
    assert read_pod(annotations={COOLDOWN: value}).cooldown == seconds


def test_cooldown_of_the_label_precedes_the_annotation() -> None:
    assert read_pod(labels={COOLDOWN: "1m"}, annotations={COOLDOWN: "2m"}).cooldown == 60


@pytest.mark.parametrize(("value", "advice"), [("soon", "is not a duration such as 30s"), ("-5m", "is negative")])
def test_invalid_cooldown_is_ignored_and_reported(value: str, advice: str) -> None:
    door = Intake(["phalanx"])
    (event,) = door.pod(pod(labels={COOLDOWN: value}))
    assert isinstance(event, PodUpdated)
    assert event.pod.cooldown == 0
    (notice,) = told(door)
    assert advice in notice
    assert notice.endswith("the value is ignored")


@pytest.mark.parametrize("text", [format_time(EPOCH + 7), "2030-03-17T18:46:47+01:00", "2030-03-17T17:46:47.9Z"])
def test_checkpoint_time_of_a_pod_is_read(text: str) -> None:
    assert read_pod(annotations={CHECKPOINT: text}).checkpoint == EPOCH + 7


@pytest.mark.parametrize("text", ["yesterday", "2030-03-17T17:46:47", "2030-03-17", "1900000007"])
def test_checkpoint_without_a_time_zone_is_ignored_and_reported(text: str) -> None:
    door = Intake(["phalanx"])
    (event,) = door.pod(pod(annotations={CHECKPOINT: text}))
    assert isinstance(event, PodUpdated)
    assert event.pod.checkpoint == 0
    assert told(door) == [
        f"InvalidAnnotation: metadata.annotations[{CHECKPOINT}]: {text!r} is not a time such as "
        "2026-01-31T12:00:00Z; the value is ignored"
    ]


def test_other_changes_of_a_pod_cause_no_further_report() -> None:
    door = Intake(["phalanx"])
    door.pod(pod(annotations={CHECKPOINT: "17:46"}))
    assert len(told(door)) == 1
    door.pod(pod(annotations={CHECKPOINT: "17:46", COOLDOWN: "5m"}, phase="Running"))
    assert told(door) == []


def test_fault_that_returns_after_its_correction_is_reported_again() -> None:
    door = Intake(["phalanx"])
    door.pod(pod(annotations={COOLDOWN: "soon"}))
    assert len(told(door)) == 1
    door.pod(pod(annotations={COOLDOWN: "5m"}))
    door.pod(pod(annotations={COOLDOWN: "soon"}))
    assert len(told(door)) == 1


# Pods that are never evicted.


def owned_by(kind: str, controller: bool = True) -> Pod:
    document = pod_document(node="n1")
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "u", "controller": controller}
    document["metadata"]["ownerReferences"] = [owner]
    decoder, read = PodDecoder(), decode(document)
    return decoder.pod(read, decoder.template(read), "")


def test_daemon_set_pods_belong_to_their_node() -> None:
    assert owned_by("DaemonSet").fixture
    assert not owned_by("DaemonSet", controller=False).fixture
    assert not owned_by("StatefulSet").fixture


def static(owner: dict[str, Any] | None, annotations: dict[str, str], node: str = "n1") -> tuple[bool, bool]:
    document = pod_document(node=node, annotations=annotations)
    document["metadata"]["ownerReferences"] = [owner] if owner else []
    decoder, read = PodDecoder(), decode(document)
    found = decoder.pod(read, decoder.template(read), "")
    return found.fixture, found.critical


MIRROR = {"kubernetes.io/config.mirror": "abc", "kubernetes.io/config.source": "file"}
NODE = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u", "controller": True}


def test_static_pods_belong_to_their_node_and_are_critical() -> None:
    assert static(NODE, MIRROR) == (True, True)


@pytest.mark.parametrize(
    ("owner", "annotations"),
    [
        (None, MIRROR),
        (None, {"kubernetes.io/config.source": "file"}),
        ({**NODE, "name": "n2"}, MIRROR),
        ({**NODE, "controller": False}, MIRROR),
        ({**NODE, "apiVersion": "example.com/v1"}, MIRROR),
        (NODE, {}),  # any user can add an owner later, but not that annotation
    ],
)
def test_annotation_alone_makes_no_pod_static(owner: dict[str, Any] | None, annotations: dict[str, str]) -> None:
    assert static(owner, annotations) == (False, False)


def test_pod_without_a_node_is_not_static_whatever_its_annotations() -> None:
    assert static({**NODE, "name": ""}, MIRROR, node="") == (False, False)


CRITICAL = [
    ({"priorityClassName": "system-cluster-critical"}, True),
    ({"priorityClassName": "system-node-critical", "priority": 0}, True),
    ({"priorityClassName": "mine", "priority": 2_000_000_000}, True),
    ({"priorityClassName": "mine", "priority": 1_999_999_999}, False),
    ({}, False),
]


@pytest.mark.parametrize(("spec", "answer"), CRITICAL)
def test_system_pods_of_the_cluster_are_critical(spec: dict[str, Any], answer: bool) -> None:
    assert read_pod(namespace="kube-system", **spec).critical is answer


@pytest.mark.parametrize(("spec", "answer"), CRITICAL)
def test_no_pod_in_a_tenants_namespace_is_critical(spec: dict[str, Any], answer: bool) -> None:
    assert not read_pod(**spec).critical
    decoder, read = PodDecoder(DialectOptions(system_namespaces=("default",))), pod(**spec)
    assert decoder.pod(read, decoder.template(read), "").critical is answer


# Unreadable pods.


def test_pod_with_unreadable_labels_is_not_evicted() -> None:
    document = pod_document(node="n1")
    document["metadata"]["labels"] = ["preemptable"]
    decoder, read = PodDecoder(), decode(document)
    assert not decoder.pod(read, decoder.template(read), "").preemptable


def test_undecodable_pod_is_not_evicted_and_keeps_its_known_fields() -> None:
    door = Intake(["phalanx"])
    status = {"startTime": format_time(EPOCH + 9), "conditions": [scheduled()]}
    annotations = {COOLDOWN: "10m", CHECKPOINT: format_time(EPOCH + 60)}
    good = pod_document(node="n1", phase="Running", status=status, annotations=annotations, priority=2_000_000_000)
    good["metadata"]["namespace"] = "kube-system"
    door.pod(
        decode_pod(msgspec.json.encode({**good, "spec": {**good["spec"], "terminationGracePeriodSeconds": 7}}))
    )
    (event,) = door.malformed_pod("kube-system", "p", "uid-p", "bad", b"{")
    assert isinstance(event, PodUpdated)
    last = event.pod
    assert not last.preemptable
    assert (last.started, last.bound, last.cooldown) == (EPOCH + 9, EPOCH + 5, 600)
    assert (last.checkpoint, last.grace, last.critical) == (EPOCH + 60, 7, True)
