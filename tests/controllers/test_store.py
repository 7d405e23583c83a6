"""Objects known to a controller, for any order of the watch and the answers to its own writes."""

from __future__ import annotations

from itertools import permutations

import msgspec

from phalanx.controllers.store import ObjectStore
from phalanx.jobs.members import JobPod, read_pod
from phalanx.kube.changes import Delete, Upsert

KEY = ("default", "j-w-0")


def raw(uid: str = "a", version: int = 1, *, deleting: bool = False) -> bytes:
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": "j",
        "uid": "job",
        "controller": True,
    }
    metadata = {
        "namespace": KEY[0],
        "name": KEY[1],
        "uid": uid,
        "resourceVersion": str(version),
        "ownerReferences": [{**owner, "controller": True}],
    }
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return msgspec.json.encode({"metadata": metadata})


def told(uid: str, version: int, *, deleting: bool = False) -> Upsert[bytes]:
    body = raw(uid, version, deleting=deleting)
    return Upsert(body, body, KEY, uid)


def store() -> ObjectStore[JobPod]:
    return ObjectStore(read_pod, index=lambda pod: pod.owner)


def test_answer_to_a_deletion_does_not_restore_an_object_deleted_in_the_watch() -> None:
    pods = store()
    pods.sink(told("a", 1))
    pods.sink(told("a", 2, deleting=True))
    pods.sink(Delete(KEY, "a", None))
    pods.put(KEY, raw("a", 2, deleting=True))
    assert pods.get(KEY) is None
    assert list(pods.of("job")) == []


def test_late_watch_event_does_not_restore_a_deleted_object() -> None:
    pods = store()
    pods.sink(told("a", 1))
    pods.remove(KEY, "a")
    pods.sink(told("a", 2, deleting=True))
    assert pods.get(KEY) is None
    pods.put(KEY, raw("b", 5))
    pods.sink(told("a", 3, deleting=True))
    pods.sink(Delete(KEY, "a", None))
    found = pods.get(KEY)
    assert found is not None
    assert found.uid == "b"


def test_end_state_is_equal_for_any_order_of_answers_and_events() -> None:
    # The watch is in order; answers arrive at any time.
    events: list[Upsert[bytes] | Delete[bytes]] = [
        told("a", 1),
        told("a", 2, deleting=True),
        Delete(KEY, "a", None),
        told("b", 4),
    ]
    answers = [raw("a", 2, deleting=True), raw("b", 4)]
    for order in set(permutations("eeeepp")):
        pods, coming, answered = store(), iter(events), iter(answers)
        for step in order:
            if step == "e":
                pods.sink(next(coming))
            else:
                pods.put(KEY, next(answered))
        found = pods.get(KEY)
        assert found is not None, order
        assert (found.uid, found.deleting) == ("b", False), order


def test_kind_that_was_not_served_for_a_while_is_read_again() -> None:
    pods = store()
    pods.sink(told("a", 1))
    pods.sink(Delete(KEY, "a", None))
    pods.sink(told("a", 1))
    assert pods.get(KEY) is not None
