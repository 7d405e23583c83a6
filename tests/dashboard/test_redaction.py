"""Sentences of the scheduler, as somebody reads them who sees the namespace `ours` and nothing else."""

from __future__ import annotations

import json

import pytest

from phalanx.dashboard.access import Viewer
from phalanx.dashboard.names import NameIndex
from phalanx.dashboard.scope import Redaction, Scope
from phalanx.model.events import GangUpdated, NodeUpdated, PodUpdated
from phalanx.model.gang import Gang, GangKey, GangOwner
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass


@pytest.fixture
def read() -> Redaction:
    names = NameIndex()
    for namespace, name, gang, node in (
        ("ours", "train-0", "train", "node-1"),
        ("theirs", "spy-0", "spy", "node-2"),
        ("theirs", "spy_B", "Spy.Group_2", ""),
    ):
        pod = Pod(
            namespace,
            name,
            name,
            PodClass(),
            gang=gang,
            node=node,
            queue=f"{namespace}-queue",
            user=f"u-{namespace}",
        )
        names.take_in(PodUpdated(pod))
    for namespace, name in (("ours", "mine"), ("theirs", "hidden-job")):
        owner = GangOwner("vcjob", name, "7d1c")
        declared = Gang(GangKey(namespace, f"{name}-7d1c"), owner=owner, shown=f"vcjob/{name}")
        names.take_in(GangUpdated(declared))
    for node in ("node-1", "node-2"):
        names.take_in(NodeUpdated(Node(node)))
    scope = Scope(Viewer("somebody"), "ours", False, False, True, frozenset())
    return Redaction(scope, names)


@pytest.mark.parametrize(
    ("told", "read_as"),
    [
        ("Preempted by gang theirs/spy on node node-2.", "Preempted by another gang on another node."),
        ("gang ours/train on node-1 waits", "gang ours/train on node-1 waits"),
        ("behind spy, spy-0 and Spy.Group_2", "behind another gang, another pod and another gang"),
        ("gang theirs/vcjob/hidden-job waits for vcjob/hidden-job", "another gang waits for another gang"),
        ("hidden-job, hidden-job-7d1c", "another gang, another gang"),
        ("gang ours/vcjob/mine waits", "gang ours/vcjob/mine waits"),
        ("user u-theirs uses theirs-queue", "another user uses another queue"),
        ("u-ours uses ours-queue", "u-ours uses ours-queue"),
        ("0/40 nodes, 2 nvidia.com/gpu (8 x 8)", "0/40 nodes, 2 nvidia.com/gpu (8 x 8)"),
        ("queue gone-queue, node gone-7", "another queue, another node"),
        ("gone-ns/gone-gang", "something of another namespace"),
        ("queue is closed", "queue is closed"),
    ],
)  # fmt: skip
def test_names_of_others_are_taken_out(read: Redaction, told: str, read_as: str) -> None:
    assert read.text(told) == read_as


def test_they_are_taken_out_of_every_part_of_an_answer(read: Redaction) -> None:
    answer = {"state": "Waiting", "members": [{"name": "spy-0"}], "spy-0": {"theirs/spy": "spy"}}
    assert "spy" not in json.dumps(read.applied(answer))
    assert read.applied({"state": "Waiting", "message": "ours/train"}) == {
        "state": "Waiting",
        "message": "ours/train",
    }
