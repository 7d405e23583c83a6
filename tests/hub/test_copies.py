"""Copies are gated, name their origin, and contain nothing of the hub's own cluster."""

from __future__ import annotations

from typing import Any

from phalanx.hub.copies import copy_view, group_copy, pod_copy, startable
from phalanx.hub.objects import printable, read_object
from phalanx.hub.observed import LostPolicy

Json = dict[str, Any]


def pod(**metadata: Any) -> Json:
    return {
        "metadata": {"name": "w-0", "namespace": "ml", "uid": "u1", **metadata},
        "spec": {
            "schedulingGates": [{"name": "phalanx.dev/dispatch"}],
            "serviceAccountName": "trainer",
            "serviceAccount": "trainer",
            "priority": 7,
            "priorityClassName": "high",
            "nodeName": "",
            "volumes": [{"name": "kube-api-access-x1", "projected": {}}, {"name": "data"}],
            "containers": [
                {"name": "main", "volumeMounts": [{"name": "kube-api-access-x1"}, {"name": "data"}]},
            ],
        },
        "status": {"phase": "Pending"},
    }


def test_a_copy_is_gated_and_marked_and_nothing_of_the_hubs_cluster_is_in_it() -> None:
    source = pod(
        labels={"app": "train"},
        annotations={"phalanx.dev/suspend": "false", "phalanx.dev/run-seconds": "5", "note": "mine"},
        ownerReferences=[{"kind": "Job", "name": "train", "uid": "j"}],
    )
    made = pod_copy(source, "hub-1", "d-1", 3, LostPolicy.STOP)
    assert made["spec"]["schedulingGates"] == [{"name": "phalanx.dev/grant"}]
    assert made["metadata"]["labels"] == {
        "app": "train",
        "app.kubernetes.io/managed-by": "phalanx",
        "phalanx.dev/origin": "hub-1",
        "phalanx.dev/dispatch-uid": "d-1",
    }
    assert made["metadata"]["annotations"] == {
        "phalanx.dev/run-seconds": "5",
        "note": "mine",
        "phalanx.dev/origin-uid": "u1",
        "phalanx.dev/epoch": "3",
        "phalanx.dev/when-lost": "Stop",
    }
    assert "ownerReferences" not in made["metadata"]
    assert made["spec"]["priorityClassName"] == "high"
    assert not {"priority", "nodeName", "serviceAccount"} & set(made["spec"])
    assert made["spec"]["volumes"] == [{"name": "data"}]
    assert made["spec"]["containers"][0]["volumeMounts"] == [{"name": "data"}]
    assert "schedulingGates" not in startable(made)["spec"]


def test_copy_awaits_only_members_that_have_not_ended_elsewhere() -> None:
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "ml", "uid": "g1"},
        "spec": {"minMember": 4},
    }
    assert group_copy(group, "h", "d", 1, LostPolicy.WAIT, 0)["spec"] == {"minMember": 4}
    assert group_copy(group, "h", "d", 1, LostPolicy.WAIT, 3)["spec"] == {"minMember": 1}


def test_decoded_copy_equals_the_written_one() -> None:
    made = pod_copy(pod(), "h", "d", 3, LostPolicy.WAIT)
    made["metadata"] |= {"uid": "c1", "resourceVersion": "1"}
    view = copy_view(made, pod())
    assert (view.origin_uid, view.epoch, view.gated, view.held, view.over) == ("u1", 3, True, True, False)


def test_an_epoch_that_is_none_is_older_than_all() -> None:
    made = pod_copy(pod(), "h", "d", 3, LostPolicy.WAIT)
    made["metadata"] |= {"uid": "c1", "annotations": {"phalanx.dev/epoch": "9" * 100}}
    assert copy_view(made, None).epoch == 0


def test_any_answer_of_a_cluster_decodes_to_an_object_or_none() -> None:
    hostile = [
        b"null",
        b"[]",
        b'{"metadata": []}',
        b'{"metadata": {"name": 1, "uid": "u", "resourceVersion": "1"}}',
        b'{"metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}, "spec": {"schedulingGates": [1]}}',
        b"[" * 100_000,
    ]
    assert [read_object(raw) for raw in hostile] == [None] * len(hostile)
    metadata = b'{"name": "n", "uid": "u", "resourceVersion": "1", "labels": [], "finalizers": {}}'
    odd = b'{"metadata": %b, "status": [], "spec": 7}' % metadata
    found = read_object(odd)
    assert found is not None
    assert copy_view(found.document, None).name == "n"


def test_foreign_text_is_one_printable_line() -> None:
    assert printable("a\x1b[2Jb\nc") == "a [2Jb c"
    assert len(printable("x" * 10_000)) == 300
