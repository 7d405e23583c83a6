"""HyperNode objects: decoding, and isolation of faults."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.dialects.nodes.hypernodes import HYPER_NODES, HyperNodes, read_hypernode
from phalanx.dialects.warnings import ObjectWarnings
from phalanx.model.events import HyperNodeRemoved, HyperNodeUpdated
from phalanx.model.selectors import Requirement
from phalanx.model.topology import HyperNode, HyperNodeMember

KIND = HYPER_NODES.served_as("v1alpha1")


def hypernode(name: str = "r1", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec}


def node(name: str) -> dict[str, Any]:
    return {"type": "Node", "selector": {"exactMatch": {"name": name}}}


def test_members_by_name_by_pattern_and_by_labels_are_read() -> None:
    found, faults = read_hypernode(
        KIND,
        hypernode(
            tier=2,
            tierName="spine",
            members=[
                node("n1"),
                {"type": "HyperNode", "selector": {"regexMatch": {"pattern": "^r"}}},
                {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"rack": "r1"}}}},
            ],
        ),
    )
    assert found == HyperNode(
        "r1",
        2,
        "spine",
        (
            HyperNodeMember(name="n1"),
            HyperNodeMember(nested=True, pattern="^r"),
            HyperNodeMember(labels=(Requirement("rack", "In", ("r1",)),)),
        ),
    )
    assert faults == ()


@pytest.mark.parametrize(
    ("member", "fault"),
    [
        ("n1", 'spec.members[1] is "n1"; write {type: Node'),
        ({"type": "Pod"}, 'spec.members[1].type is "Pod"; write Node or HyperNode'),
        ({"type": "Node"}, "spec.members[1].selector is null; write exactly one of exactMatch"),
        (
            {"type": "Node", "selector": {"exactMatch": {"name": "a"}, "regexMatch": {"pattern": "b"}}},
            "write exactly one of exactMatch, regexMatch, labelMatch",
        ),
        (
            {"type": "Node", "selector": {"regexMatch": {"pattern": "a("}}},
            'spec.members[1].selector.regexMatch.pattern is "a("; this is not a regular expression',
        ),
        ({"type": "Node", "selector": {"exactMatch": {"name": 7}}}, "exactMatch.name is 7; write a text"),
        (
            {"type": "HyperNode", "selector": {"labelMatch": {"matchLabels": {"a": "b"}}}},
            "labels select Nodes; name HyperNodes instead",
        ),
        (
            {"type": "Node", "selector": {"labelMatch": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}}},
            "a: unknown operator 'Gt'",
        ),
    ],
)
def test_unreadable_member_does_not_count_and_the_remaining_ones_do(member: object, fault: str) -> None:
    found, (told,) = read_hypernode(KIND, hypernode(tier=1, members=[node("n1"), member]))
    assert found.members == (HyperNodeMember(name="n1"),)
    assert found.problem == ""
    assert fault in told
    assert told.endswith("until then this member does not count")


@pytest.mark.parametrize("tier", ["1", -1, True, 1.5])
def test_hypernode_without_a_readable_tier_has_no_members(tier: object) -> None:
    found, (told,) = read_hypernode(KIND, hypernode(tier=tier, members=[node("n1")]))
    assert (found.members, found.problem) == ((), told)
    assert told.startswith("HyperNode r1 (topology.volcano.sh): spec.tier is ")


def test_fault_is_reported_once_and_an_undecodable_hypernode_has_no_members() -> None:
    board = ObjectWarnings()
    door = HyperNodes(board)
    broken = hypernode(tier=1, members=[node("n1"), "n2"])
    events, _ = door.updated(KIND, broken)
    assert events == [HyperNodeUpdated(HyperNode("r1", 1, "", (HyperNodeMember(name="n1"),)))]
    assert [notice.reason for notice in board.drain()] == ["InvalidHyperNode"]
    door.updated(KIND, broken)
    assert board.drain() == []
    events, _ = door.malformed(KIND, "", "r1", "uid-r1", "truncated")
    assert events == [HyperNodeUpdated(HyperNode("r1", problem="HyperNode r1: cannot be read: truncated"))]
    assert len(board.drain()) == 1


def test_deleted_hypernodes_and_an_unserved_kind_are_removed() -> None:
    door = HyperNodes(ObjectWarnings())
    for name in ("b", "a", "c"):
        door.updated(KIND, hypernode(name, tier=1))
    assert door.removed(KIND, "", "c") == ([HyperNodeRemoved("c")], set())
    assert door.removed(KIND, "", "c") == ([], set())
    assert door.unserved(KIND) == ([HyperNodeRemoved("a"), HyperNodeRemoved("b")], set())
