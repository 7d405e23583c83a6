"""`phalanx why` of composites: groups that could start, and the obstacle of the first remaining one."""

from __future__ import annotations

from phalanx.cli.explanation.why import parse_target, render
from phalanx.cluster.state import ClusterState
from phalanx.dialects.families.native import NAMING
from phalanx.dialects.intake import Intake
from phalanx.model.composite import Composite
from phalanx.model.events import CompositeUpdated, GangUpdated, NodeUpdated, PodUpdated
from phalanx.model.gang import Gang, GangKey, GroupRef, MatchPolicy
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass
from phalanx.model.resources import requests_of
from phalanx.reports.snapshot import Snapshot
from phalanx.reports.why import WhyReport
from phalanx.reports.why_answer import WhyAnswer
from phalanx.scheduling.policy.loader import load_policy

KEY = GangKey("ns", "c")
ONE = PodClass(requests=requests_of({"cpu": 1000}))


def cluster(cpus: int, *groups: str, least: int = 2, parent: str = "") -> Snapshot:
    """A node, a composite, and groups of two pods below it."""
    snapshot = Snapshot(ClusterState(), Intake(("phalanx",)))
    state = snapshot.state
    state.apply(NodeUpdated(Node("n", allocatable=requests_of({"cpu": cpus * 1000, "pods": 110}))))
    ref = GroupRef("scheduling.k8s.io", "v1alpha3", "CompositePodGroup", "compositepodgroups", "ns", "c", "uid-c")
    state.apply(CompositeUpdated(Composite(KEY, ref, least, GangKey("ns", parent) if parent else None)))
    for name in groups:
        gang = Gang(
            GangKey("ns", name),
            rules=NAMING.rules,
            min_member=2,
            match_policy=MatchPolicy.UNTIL_SCHEDULED,
            composite=KEY,
        )
        state.apply(GangUpdated(gang))
        for number in (0, 1):
            pod = Pod("ns", f"{name}-{number}", f"{name}-{number}", ONE, ONE.requests, "phalanx", gang=name)
            state.apply(PodUpdated(pod))
    return snapshot


def ask(snapshot: Snapshot) -> WhyAnswer:
    answer = WhyReport(snapshot, load_policy(), 1e9).composite(KEY)
    assert answer is not None
    return answer


def test_a_composite_that_would_start_says_so() -> None:
    answer = ask(cluster(4, "a", "b"))
    assert (answer.kind, answer.state, answer.forecast) == ("CompositePodGroup", "Pending", "StartsNow")
    assert answer.message == "2 groups started or would start now; 2 required"


def test_composite_without_room_names_the_group_in_its_way_and_a_fix() -> None:
    answer = ask(cluster(3, "a", "b"))
    assert (answer.state, answer.reason, answer.placeable, answer.missing) == (
        "Pending",
        "NotEnoughResources",
        1,
        1,
    )
    assert answer.message.startswith("only 1 of the 2 required groups started or can start; gang ns/b: only 1")
    assert "1 cpu" in answer.change
    assert [(group.name, group.state) for group in answer.groups] == [("ns/a", "Pending"), ("ns/b", "Pending")]


def test_one_that_lacks_groups_says_how_many() -> None:
    answer = ask(cluster(8, "a"))
    assert (answer.state, answer.reason, answer.change) == ("Pending", "NotEnoughMembers", "create 1 more group")


def test_composite_with_an_invalid_tree_names_the_mistake() -> None:
    answer = ask(cluster(8, "a", parent="c"))
    assert (answer.reason, answer.change) == ("InvalidComposite", "remove one of the parents")


def test_a_gang_names_the_composite_that_it_is_a_part_of() -> None:
    answer = WhyReport(cluster(3, "a", "b"), load_policy(), 1e9).gang(GangKey("ns", "a"))
    assert answer is not None
    assert (answer.reason, answer.composite) == ("WaitingForComposite", "ns/c")
    assert "  Part of CompositePodGroup ns/c" in render(answer)


def test_people_read_a_line_for_each_group() -> None:
    text = render(ask(cluster(3, "a", "b")))
    assert "CompositePodGroup ns/c: Pending (NotEnoughResources)" in text
    assert "  Group ns/b: Pending; only 1 of the 2 required pods of gang ns/b fit" in text


def test_there_may_be_no_such_composite() -> None:
    assert WhyReport(cluster(3), load_policy(), 1e9).composite(GangKey("ns", "other")) is None


def test_the_kind_may_be_abbreviated() -> None:
    assert parse_target(("cpg/c",)) == parse_target(("compositepodgroup", "c")) == ("composite", "c")
