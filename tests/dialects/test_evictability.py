"""What pods say about being evicted: read where it can be read, and never a way to lose what was to be kept."""

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


# When it began.


def test_a_pod_runs_since_its_node_took_it_and_is_bound_since_it_was_scheduled() -> None:
    status = {"startTime": format_time(EPOCH + 9), "conditions": [scheduled()]}
    found = read_pod(node="n1", phase="Running", status=status)
    assert (found.started, found.bound) == (EPOCH + 9, EPOCH + 5)


@pytest.mark.parametrize("conditions", [[], [scheduled("False")], [scheduled(since=None)]])
def test_a_pod_that_nobody_scheduled_is_bound_since_it_started(conditions: list[dict[str, Any]]) -> None:
    status = {"startTime": format_time(EPOCH + 9), "conditions": conditions}
    assert read_pod(node="n1", status=status).bound == EPOCH + 9


def test_a_pod_without_a_node_is_not_bound_whatever_its_status_says() -> None:
    found = read_pod(status={"conditions": [scheduled()]})
    assert (found.started, found.bound) == (0, 0)


def test_times_that_are_null_are_unknown_and_no_fault() -> None:
    read = decode(pod_document(node="n1", status={"startTime": None, "conditions": [scheduled(since=None)]}))
    decoder = PodDecoder()
    found = decoder.pod(read, decoder.template(read), "")
    assert (read.faults, found.started, found.bound) == ((), 0, 0)


# When it ends.


def test_a_pod_that_says_nothing_gets_half_a_minute() -> None:
    assert (read_pod().grace, read_pod().leaves) == (30, 0)


@pytest.mark.parametrize(("stated", "given"), [(0, 0), (600, 600), (-1, 1), (None, 30), (10**30, 2**31 - 1)])
def test_a_pod_gets_the_grace_that_it_states(stated: int | None, given: int) -> None:
    assert read_pod(terminationGracePeriodSeconds=stated).grace == given


def test_a_terminating_pod_has_the_grace_that_it_was_given_and_leaves_when_that_is_over() -> None:
    document = pod_document(node="n1", terminationGracePeriodSeconds=600)
    document["metadata"] |= {"deletionTimestamp": format_time(EPOCH + 50), "deletionGracePeriodSeconds": 5}
    decoder, read = PodDecoder(), decode(document)
    found = decoder.pod(read, decoder.template(read), "")
    assert (found.terminating, found.leaves, found.grace) == (True, EPOCH + 50, 5)


# What its owner says.


@pytest.mark.parametrize("place", ["annotations", "labels"])
@pytest.mark.parametrize(
    ("value", "answer"), [("true", True), ("1", True), ("false", False), ("False", False), ("0", False)]
)
def test_its_owner_may_forbid_that_a_pod_is_evicted(place: str, value: str, answer: bool) -> None:
    assert read_pod(**{place: {PREEMPTABLE: value}}).preemptable is answer


def test_nothing_said_forbids_nothing() -> None:
    assert read_pod().preemptable


def test_the_annotation_is_heard_before_the_label() -> None:
    assert not read_pod(annotations={PREEMPTABLE: "false"}, labels={PREEMPTABLE: "true"}).preemptable
    assert read_pod(annotations={PREEMPTABLE: "true"}, labels={PREEMPTABLE: "false"}).preemptable


@pytest.mark.parametrize("value", ["no", "", "FALSE "])
def test_a_word_that_is_neither_yes_nor_no_forbids_eviction_and_is_told(value: str) -> None:
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
def test_a_pod_may_ask_for_time_to_cool_down(value: str, seconds: int) -> None:
    assert read_pod(labels={COOLDOWN: value}).cooldown == seconds
    assert read_pod(annotations={COOLDOWN: value}).cooldown == seconds


def test_of_two_cooldowns_the_labels_holds() -> None:
    assert read_pod(labels={COOLDOWN: "1m"}, annotations={COOLDOWN: "2m"}).cooldown == 60


@pytest.mark.parametrize(("value", "advice"), [("soon", "is not a duration such as 30s"), ("-5m", "is negative")])
def test_a_cooldown_that_is_none_is_passed_over_and_told(value: str, advice: str) -> None:
    door = Intake(["phalanx"])
    (event,) = door.pod(pod(labels={COOLDOWN: value}))
    assert isinstance(event, PodUpdated)
    assert event.pod.cooldown == 0
    (notice,) = told(door)
    assert advice in notice
    assert notice.endswith("it is ignored")


@pytest.mark.parametrize("text", [format_time(EPOCH + 7), "2030-03-17T18:46:47+01:00", "2030-03-17T17:46:47.9Z"])
def test_a_pod_says_when_its_work_was_last_saved(text: str) -> None:
    assert read_pod(annotations={CHECKPOINT: text}).checkpoint == EPOCH + 7


@pytest.mark.parametrize("text", ["yesterday", "2030-03-17T17:46:47", "2030-03-17", "1900000007"])
def test_a_checkpoint_that_is_no_time_with_a_zone_is_passed_over_and_told(text: str) -> None:
    door = Intake(["phalanx"])
    (event,) = door.pod(pod(annotations={CHECKPOINT: text}))
    assert isinstance(event, PodUpdated)
    assert event.pod.checkpoint == 0
    assert told(door) == [
        f"InvalidAnnotation: metadata.annotations[{CHECKPOINT}]: {text!r} is not a time such as "
        "2026-01-31T12:00:00Z; it is ignored"
    ]


def test_a_pod_that_changes_in_other_ways_is_not_told_again() -> None:
    door = Intake(["phalanx"])
    door.pod(pod(annotations={CHECKPOINT: "17:46"}))
    assert len(told(door)) == 1
    door.pod(pod(annotations={CHECKPOINT: "17:46", COOLDOWN: "5m"}, phase="Running"))
    assert told(door) == []


def test_what_has_been_put_right_and_wrong_again_is_told_again() -> None:
    door = Intake(["phalanx"])
    door.pod(pod(annotations={COOLDOWN: "soon"}))
    assert len(told(door)) == 1
    door.pod(pod(annotations={COOLDOWN: "5m"}))
    door.pod(pod(annotations={COOLDOWN: "soon"}))
    assert len(told(door)) == 1


# What must not be evicted at all.


def owned_by(kind: str, controller: bool = True) -> Pod:
    document = pod_document(node="n1")
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "u", "controller": controller}
    document["metadata"]["ownerReferences"] = [owner]
    decoder, read = PodDecoder(), decode(document)
    return decoder.pod(read, decoder.template(read), "")


def test_the_pods_of_a_daemon_set_belong_to_their_node() -> None:
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
        (NODE, {}),  # anybody may write an owner later on, but nobody that annotation
    ],
)
def test_nobody_makes_a_pod_static_by_saying_so(owner: dict[str, Any] | None, annotations: dict[str, str]) -> None:
    assert static(owner, annotations) == (False, False)


def test_a_pod_without_a_node_is_not_static_whatever_it_says() -> None:
    assert static({**NODE, "name": ""}, MIRROR, node="") == (False, False)


CRITICAL = [
    ({"priorityClassName": "system-cluster-critical"}, True),
    ({"priorityClassName": "system-node-critical", "priority": 0}, True),
    ({"priorityClassName": "mine", "priority": 2_000_000_000}, True),
    ({"priorityClassName": "mine", "priority": 1_999_999_999}, False),
    ({}, False),
]


@pytest.mark.parametrize(("spec", "answer"), CRITICAL)
def test_what_the_cluster_itself_needs_is_critical(spec: dict[str, Any], answer: bool) -> None:
    assert read_pod(namespace="kube-system", **spec).critical is answer


@pytest.mark.parametrize(("spec", "answer"), CRITICAL)
def test_nothing_is_critical_in_a_tenants_namespace(spec: dict[str, Any], answer: bool) -> None:
    assert not read_pod(**spec).critical
    decoder, read = PodDecoder(DialectOptions(system_namespaces=("default",))), pod(**spec)
    assert decoder.pod(read, decoder.template(read), "").critical is answer


# What cannot be read.


def test_a_pod_whose_labels_cannot_be_read_may_be_one_that_must_not_be_evicted() -> None:
    document = pod_document(node="n1")
    document["metadata"]["labels"] = ["preemptable"]
    decoder, read = PodDecoder(), decode(document)
    assert not decoder.pod(read, decoder.template(read), "").preemptable


def test_a_pod_that_cannot_be_decoded_is_not_evicted_and_keeps_what_was_known_of_it() -> None:
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
