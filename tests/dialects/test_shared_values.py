"""Values that the pods of one job have in common are stored once."""

from __future__ import annotations

import json

from phalanx.dialects.intake import Intake
from phalanx.dialects.pods.pod_reader import PodReader
from phalanx.dialects.shared_values import SharedValues
from phalanx.model.events import PodUpdated
from phalanx.model.pod import Pod

SCHEDULER = "phalanx"


def pod_json(number: int, job: str = "train") -> bytes:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"uid-of-{job}", "controller": True}
    return json.dumps(
        {
            "metadata": {
                "name": f"{job}-{number}",
                "namespace": "team",
                "uid": f"{job}-{number}",
                "labels": {"scheduling.x-k8s.io/pod-group": job},
                "ownerReferences": [owner],
            },
            "spec": {"schedulerName": SCHEDULER, "containers": [{"name": "main"}]},
        }
    ).encode()


def read_pods(intake: Intake, *documents: bytes) -> list[Pod]:
    reader = PodReader()
    events = [event for document in documents for event in intake.pod(reader.pod(document))]
    return [event.pod for event in events if isinstance(event, PodUpdated)]


def test_pods_of_one_job_share_their_strings() -> None:
    first, second = read_pods(Intake([SCHEDULER]), pod_json(0), pod_json(1))
    assert first.gang == "train"
    assert first.gang is second.gang
    assert first.controller == "uid-of-train"
    assert first.controller is second.controller
    assert first.owner_kind is second.owner_kind
    assert first.labels is second.labels


def test_pods_of_one_job_share_their_declaration() -> None:
    intake = Intake([SCHEDULER])
    read_pods(intake, pod_json(0), pod_json(1), pod_json(0, "other"))
    known = intake._pods
    first, second, other = (known[uid] for uid in ("train-0", "train-1", "other-0"))
    assert first.declared is second.declared is not None
    assert first.owners is second.owners
    assert other.declared is not None
    assert other.declared is not first.declared


def test_owner_with_a_changed_reference_is_not_shared() -> None:
    reader = PodReader()
    first = reader.pod(pod_json(0))
    second = reader.pod(pod_json(1).replace(b'"controller": true', b'"controller": false'))
    third = reader.pod(pod_json(2).replace(b'"controller": true', b'"controller": false'))
    assert first.metadata.owner_references[0].controller
    assert not second.metadata.owner_references[0].controller
    assert second.metadata.owner_references[0] is third.metadata.owner_references[0]


def test_memory_of_shared_values_is_bounded() -> None:
    shared = SharedValues[tuple[str, int]]()
    first = shared["value", 0]
    assert shared["value", 0] is first
    for number in range(25_000):
        assert shared["value", number] == ("value", number)
    assert len(shared) <= 10_000
