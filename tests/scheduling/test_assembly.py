"""Placement of small gangs against every possible assignment, on tiny clusters: no gang that fits is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from phalanx.cluster.state import ClusterState
from phalanx.model.events import GangUpdated, NodeUpdated, PodUpdated
from phalanx.model.gang import Gang, GangKey
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass
from phalanx.model.resources import requests_of
from phalanx.model.selectors import HostPort
from phalanx.scheduling.placement.exact_search import ExactSearch, SearchKind, SearchNeed, SearchPart
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler

from ..extent import examples
from .scenario import PACKING, Scenario

Requests = dict[str, int]


class Case:
    """Draw a cluster of at most five nodes and one or two gangs of at most six members in all, with little
    slack.
    """

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.nodes = [
            Node(
                f"n{number}",
                allocatable=requests_of({"cpu": draw.randint(1, 8), "gpu": draw.randint(0, 4), "pods": 4}),
                labels=draw.choice([(), (("zone", "a"),), (("zone", "b"),)]),
            )
            for number in range(draw.randint(2, 5))
        ]
        kinds = [self._kind(draw) for _ in range(draw.randint(2, 4))]
        size = draw.randint(2, 6)
        split = draw.choice([size, size, draw.randint(1, size)])
        self.members: list[tuple[str, str, PodClass]] = [
            ("a" if number < split else "b", draw.choice(["", "ps", "worker"]), draw.choice(kinds))
            for number in range(size)
        ]
        self.gangs = [self._gang(draw, name) for name in ("a", "b") if self._of(name)]
        self.policy = draw.choice([PACKING, None])

    def _kind(self, draw: random.Random) -> PodClass:
        return PodClass(
            requests=requests_of({"cpu": draw.randint(1, 5), "gpu": draw.choice([0, 0, 1, 2])}),
            node_selector=draw.choice([(), (), (("zone", "a"),)]),
            host_ports=draw.choice([(), (), (), (HostPort(80),), (HostPort(80, ip="10.0.0.1"), HostPort(81))]),
        )

    def _of(self, name: str) -> list[tuple[str, str, PodClass]]:
        return [member for member in self.members if member[0] == name]

    def _gang(self, draw: random.Random, name: str) -> Gang:
        members = self._of(name)
        roles = [member[1] for member in members if member[1]]
        least = {role: draw.randint(1, roles.count(role)) for role in sorted(set(roles)) if draw.random() < 0.4}
        minimum = max(draw.randint(max(1, len(members) - 2), len(members)), sum(least.values()))
        gang_group = tuple(GangKey("ns", other) for other in "ab" if self._of(other))
        return Gang(GangKey("ns", name), min_member=minimum, roles=tuple(least.items()), gang_group=gang_group)

    def fits(self) -> bool:
        """Return whether any assignment of members to nodes meets all quorums."""
        idle = [dict(node.allocatable) for node in self.nodes]
        return self._search(0, idle, [set() for _ in self.nodes], [])

    def _search(self, place: int, idle: list[Requests], ports: list[set[HostPort]], chosen: list[int]) -> bool:
        if self._met(chosen):
            return True
        if place == len(self.members):
            return False
        _, _, cls = self.members[place]
        asked = dict(cls.requests) | {"pods": 1}
        for node, free in zip(self.nodes, range(len(idle)), strict=True):
            if any(dict(node.labels).get(key) != value for key, value in cls.node_selector):
                continue
            if any(idle[free].get(name, 0) < amount for name, amount in asked.items()):
                continue
            if any(port.conflicts_with(taken) for port in cls.host_ports for taken in ports[free]):
                continue
            left = [dict(amounts) for amounts in idle]
            left[free] = {name: amount - asked.get(name, 0) for name, amount in idle[free].items()}
            held = [set(taken) for taken in ports]
            held[free] |= set(cls.host_ports)
            if self._search(place + 1, left, held, [*chosen, place]):
                return True
        return self._search(place + 1, idle, ports, chosen)

    def _met(self, chosen: list[int]) -> bool:
        for gang in self.gangs:
            mine = [self.members[place][1] for place in chosen if self.members[place][0] == gang.key.name]
            if len(mine) < gang.min_member or any(mine.count(role) < least for role, least in gang.roles):
                return False
        return True

    def schedule(self) -> dict[str, str]:
        """Return the node of each pod of the quorums (and their surplus)."""
        state = ClusterState()
        for node in self.nodes:
            state.apply(NodeUpdated(node))
        for gang in self.gangs:
            state.apply(GangUpdated(gang))
        for number, (gang_name, role, cls) in enumerate(self.members):
            name = f"p{number}"
            state.apply(PodUpdated(Pod("ns", name, name, cls, cls.requests, "phalanx", gang=gang_name, role=role)))
        policy = load_policy(self.policy) if self.policy else load_policy()
        plan = Scheduler(state, policy).cycle(0)
        return {bind.name: bind.node for bind in plan.binds}

    def check(self, bound: dict[str, str]) -> None:
        """Check that bound pods are allowed on their nodes, form whole gangs, and fit together."""
        numbers = [int(name[1:]) for name in bound]
        assert not bound or self._met(numbers)
        for node in self.nodes:
            there = [self.members[int(name[1:])][2] for name, target in bound.items() if target == node.name]
            for resource, offered in node.allocatable:
                asked = sum(1 if resource == "pods" else dict(cls.requests).get(resource, 0) for cls in there)
                assert asked <= offered
            for first, second in pairs(there):
                assert not any(p.conflicts_with(q) for p in first.host_ports for q in second.host_ports)
            for cls in there:
                assert all(dict(node.labels).get(key) == value for key, value in cls.node_selector)


def pairs(items: list[PodClass]) -> Iterator[tuple[PodClass, PodClass]]:
    return ((one, other) for place, one in enumerate(items) for other in items[place + 1 :])


@pytest.mark.thorough
@pytest.mark.slow_but_first
@pytest.mark.parametrize("batch", range(8))
def test_gang_is_placed_if_and_only_if_an_assignment_exists(batch: int) -> None:
    answers = []
    for seed in range(batch * 150, batch * 150 + examples(150)):
        case = Case(seed)
        bound = case.schedule()
        case.check(bound)
        answers.append(case.fits())
        assert bool(bound) == answers[-1], f"seed {seed}"
    assert 2 / 15 < sum(answers) / len(answers) < 14 / 15, "the cases must be neither all easy nor all hopeless"


class TestTheUsualWayIsNotEnough:
    """Cases that are refused by placing the hardest class first on the node with the best score."""

    def test_small_members_leave_the_large_node_to_the_large_member(self) -> None:
        world = Scenario().node("n1", cpu=4, gpu=0).node("n2", cpu=4, gpu=2)
        world.gang("job", 3).pod("big", gang="job", cpu=4, gpu=1).pods("small", 2, gang="job", cpu=2).run()
        assert len(world.placed()) == 3

    def test_members_with_complementary_requests_share_nodes(self) -> None:
        """Two resources, two kinds: only one of each per node fits both nodes exactly."""
        world = Scenario(PACKING).nodes(2, cpu=10, memory="10Gi")
        world.gang("job", 4)
        world.pods("cpu", 2, gang="job", cpu=7, memory="3Gi").pods("mem", 2, gang="job", cpu=3, memory="7Gi").run()
        assert len(world.placed()) == 4
        assert set(world.spread().values()) == {2}

    def test_gang_starts_with_another_member_instead_of_an_unplaceable_one(self) -> None:
        world = Scenario().node("n1", cpu=4)
        world.gang("job", 2).pod("huge", gang="job", cpu=64).pods("small", 2, gang="job", cpu=2).run()
        assert world.placed() == ["small-0", "small-1"]

    def test_member_of_higher_priority_is_preferred_unless_the_gang_would_not_fit(self) -> None:
        world = Scenario().node("n1", cpu=4)
        world.gang("job", 2).pod("greedy", gang="job", cpu=3, priority=9).pods("small", 2, gang="job", cpu=2).run()
        assert world.placed() == ["small-0", "small-1"]


class TestSearch:
    def test_search_stops_at_its_limit_and_the_verdict_says_so(self) -> None:
        idle = [[20 + number, 20 - number] for number in range(6)]
        kinds = [SearchKind(((0, 3 + number % 4), (1, 6 - number % 4)), (True,) * 6) for number in range(8)]
        parts = [SearchPart(number, 0, "", 4) for number in range(8)]
        search = ExactSearch(idle, kinds, parts, [SearchNeed(28, {})], limit=500)
        assert search.run() is None
        assert search.exhausted

    def test_refusal_within_the_search_limit_is_exact(self) -> None:
        search = ExactSearch(
            [[3]], [SearchKind(((0, 2),), (True,))], [SearchPart(0, 0, "", 2)], [SearchNeed(2, {})]
        )
        assert search.run() is None
        assert not search.exhausted

    def test_search_tries_equal_nodes_once(self) -> None:
        """On forty equal nodes there are few distinct assignments, although the number of permutations is large."""
        kinds = [SearchKind(((0, 6),), (True,) * 40), SearchKind(((0, 5),), (True,) * 40)]
        search = ExactSearch(
            [[10]] * 40,
            kinds,
            [SearchPart(0, 0, "", 20), SearchPart(1, 0, "", 41)],
            [SearchNeed(61, {})],
            limit=10**5,
        )
        assert search.run() is None
        assert not search.exhausted
