"""Table of future idle amounts: the incremental table equals one computed from scratch."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest

from phalanx.cluster.state import ClusterState
from phalanx.model.events import NodeUpdated, PodRemoved, PodUpdated
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass, PodPhase
from phalanx.model.run_time import RunTime
from phalanx.scheduling.reservations.future import FutureMatrix
from phalanx.scheduling.reservations.idle_copies import IdleCopies
from phalanx.scheduling.reservations.window import Part, Share, Window
from phalanx.scheduling.reservations.window_search import earliest_window, missing_copies

from ..extent import examples

NOW = 1_800_000_000


class EveryAccount:
    def allows(self, parts: object, begin: int, end: int) -> bool:
        return True


class World:
    """Nodes whose pods arrive and end, and windows that are added and removed."""

    def __init__(self, seed: int, nodes: int, ends: int) -> None:
        self.random = Random(seed)
        self.state = ClusterState()
        self.ends = ends
        self.nodes = nodes
        self.uids: list[str] = []
        self.windows: list[Window] = []
        self.now = NOW
        for number in range(nodes):
            offered = (("cpu", 16_000), ("gpu", 8), ("pods", 20))
            self.state.apply(NodeUpdated(Node(f"n{number:03}", allocatable=offered)))
        for _ in range(2 * nodes):
            self.pod_comes()
        self.classes = [
            self.state.classes.record(PodClass(requests=(("cpu", cpu), ("gpu", gpu)), run_limit=600))
            for cpu, gpu in ((1000, 1), (4000, 2), (3000, 0))
        ]
        self.future = FutureMatrix(self.state)

    def pod_comes(self) -> None:
        limit = self.random.randrange(60, 60 + self.ends)
        asked = (("cpu", self.random.choice((500, 2000))), ("gpu", self.random.choice((0, 1, 2))))
        uid = f"p{len(self.uids):05}"
        self.uids.append(uid)
        pod = Pod(
            *("ns", uid, uid, PodClass(requests=asked, run_limit=limit), asked, "phalanx"),
            node=f"n{self.random.randrange(self.nodes):03}",
            phase=PodPhase.RUNNING,
            started=int(self.now),
            bound=int(self.now),
            run_time=RunTime(limit),
        )
        self.state.apply(PodUpdated(pod))

    def step(self) -> None:
        match self.random.randrange(7):
            case 0:
                self.pod_comes()
            case 1 if self.uids:
                self.state.apply(PodRemoved(self.uids.pop(self.random.randrange(len(self.uids)))))
            case 2:
                self.now += self.random.choice((1, 2, 7, 70))
                self.future.advance(self.now, self.windows)
            case 5 if self.windows:
                # Windows of units that are gone are left out at the begin of a cycle, without give_back.
                self.windows.pop(self.random.randrange(len(self.windows)))
                self.future.advance(self.now, self.windows)
            case 3 if self.windows:
                self.future.give_back(self.windows.pop(self.random.randrange(len(self.windows))))
            case 4:
                pod_class, rows = self.random.choice(self.classes), np.ones(self.nodes, dtype=np.bool_)
                part = Part(pod_class, self.random.randrange(1, 12), None, rows)
                found = earliest_window(self.future, (part,), 600, EveryAccount()).window
                if found is not None:
                    add_window = self.future.reserve if len(self.windows) % 2 else self.future.take
                    self.windows.append(found)
                    add_window(found)
            case _:
                self.future.room(self.random.choice(self.classes), np.arange(self.nodes) % 2 == 0)
        self.future.update()


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(examples(18)))
def test_incremental_future_table_equals_one_computed_from_scratch(number: int) -> None:
    nodes, ends = [(4, 40), (30, 3000), (150, 100_000)][number % 3]
    world = World(number // 3, nodes, ends)
    world.future.advance(world.now, ())
    for _ in range(60):
        world.step()
        fresh = FutureMatrix(world.state)
        fresh.advance(world.now, world.windows)
        if fresh.line.edges != world.future.line.edges:
            continue  # the table advances with the next cycle
        every = np.arange(nodes)
        for pod_class in world.classes:
            until = world.now + world.random.choice((10, 300, 5000))
            assert (world.future.copies(pod_class) == fresh.copies(pod_class)).all()
            assert (
                world.future.copies_until(pod_class, every, until) == fresh.copies_until(pod_class, every, until)
            ).all()
            for mask in (np.ones(nodes, dtype=np.bool_), every % 2 == 0):
                assert (world.future.room(pod_class, mask) == fresh.room(pod_class, mask)).all()
        assert (world.future.overbooked() == fresh.overbooked()).all()


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(20)))
def test_no_earlier_start_is_found_before_the_missing_amount_of_the_class_is_freed(seed: int) -> None:
    world = World(seed, 200, 100_000)
    world.future.advance(world.now, ())
    every = np.ones(200, dtype=np.bool_)
    wanted = int(world.future.room(world.classes[seed % 3], every)[0]) + 5 + seed
    part = Part(world.classes[seed % 3], wanted, None, every)
    first = earliest_window(world.future, (part,), 600, EveryAccount())
    assert first.window is not None
    before = first.window.start
    assert before > world.now
    known = earliest_window(world.future, (part,), 600, EveryAccount(), before)
    grown, drawn = world.future.grown(part.pod_class), world.future.drawn
    found = 0
    for _ in range(120):
        if world.random.random() < 0.7 and world.uids:
            world.state.apply(PodRemoved(world.uids.pop(world.random.randrange(len(world.uids)))))
            world.future.update()
        else:
            share = Share(part.pod_class, np.array([world.random.randrange(200)]), np.array([1]))
            window = Window(int(world.now), int(world.now) + 600, (share,))
            world.future.take(window)
            world.future.copies(part.pod_class)
            world.future.give_back(window)
        assert world.future.drawn == drawn
        search = earliest_window(world.future, (part,), 600, EveryAccount(), before)
        if search.window is not None:
            assert world.future.grown(part.pod_class) - grown >= known.lacking > 0
            found += 1
            break
    assert found


def earlier_start(world: World, part: Part, before: int) -> int | None:
    window = earliest_window(world.future, (part,), 600, EveryAccount(), before).window
    return window.start if window is not None else None


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(20)))
def test_no_earlier_start_appears_on_other_time_lines_before_the_missing_amount_is_freed(seed: int) -> None:
    world = World(seed, 12, 4000)
    world.future.advance(world.now, ())
    every = np.ones(12, dtype=np.bool_)
    part = Part(world.classes[seed % 3], int(world.future.room(world.classes[seed % 3], every)[0]) + 3, None, every)
    first = earliest_window(world.future, (part,), 600, EveryAccount()).window
    assert first is not None
    known = earliest_window(world.future, (part,), 600, EveryAccount(), first.start)
    grown, drawn = world.future.grown(part.pod_class), world.future.drawn
    lines = {world.future.line.shape}
    for _ in range(60):
        world.step()
        lines.add(world.future.line.shape)
        if world.now >= first.start or world.future.drawn != drawn:
            break
        if earlier_start(world, part, first.start) is not None:
            assert world.future.grown(part.pod_class) - grown >= known.lacking > 0
            break
    assert world.now >= first.start or len(lines) > 1


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(20)))
def test_copies_that_lack_for_an_earlier_start_are_those_without_the_own_window(seed: int) -> None:
    world = World(seed, (5, 30)[seed % 2], (500, 20_000)[seed // 2 % 2])
    world.future.advance(world.now, ())
    for _ in range(60):
        world.step()
        world.future.advance(world.now, world.windows)
        for window in [window for window in world.windows if window.start > world.now]:
            share = window.shares[0]
            part = Part(share.pod_class, int(share.counts.sum()), None, np.ones(world.nodes, dtype=np.bool_))
            lacking = missing_copies(world.future, part, 600, window)
            world.future.give_back(window)
            search = earliest_window(world.future, (part,), 600, EveryAccount(), window.start)
            world.future.take(window)
            if search.window is not None:
                assert lacking is None
            elif lacking is not None:
                assert 0 < lacking <= search.lacking


def test_reserved_window_adds_its_edges_to_the_time_line_at_once() -> None:
    world = World(1, 4, 40)
    world.future.advance(world.now, ())
    rows = np.ones(4, dtype=np.bool_)
    part = Part(world.classes[0], 3, None, rows)
    window = earliest_window(world.future, (part,), 600, EveryAccount()).window
    assert window is not None
    before, line = world.future.room(part.pod_class, rows).tolist(), world.future.line
    world.future.reserve(window)
    last = world.future.line.edges.index(window.end)
    assert world.future.line.edges[last + 1 :] == line.edges[line.slots(0, window.end)[1] :]
    assert world.future.room(part.pod_class, rows)[last:].tolist() == before[-len(world.future.line) + last :]
    line = world.future.line
    world.future.update()
    assert world.future.line is line


def test_end_of_a_new_pod_keeps_the_counts_of_other_nodes() -> None:
    world = World(1, 4, 40)
    world.future.advance(world.now, ())
    every = np.ones(4, dtype=np.bool_)
    world.future.room(world.classes[0], every)
    line, drawn = world.future.line, world.future.drawn
    world.ends = 5000
    world.pod_comes()
    world.future.advance(world.now, ())
    assert world.future.line.shape != line.shape
    assert world.future.drawn == drawn


def test_classes_of_equal_amounts_share_their_counts() -> None:
    world = World(1, 4, 40)
    world.future.advance(world.now, ())
    requests = world.classes[0].spec.requests
    other = world.state.classes.record(PodClass(requests=requests, run_limit=9000))
    assert other is not world.classes[0]
    assert world.future.copies(world.classes[0]) is world.future.copies(other)


@pytest.mark.parametrize("seed", range(4))
def test_idle_copies_equal_a_count_from_scratch(seed: int) -> None:
    world = World(seed, (3, 30)[seed % 2], 3000)
    world.future.advance(world.now, ())
    idle, nodes = IdleCopies(world.state.nodes), world.state.nodes
    for _ in range(40):
        world.step()
        for pod_class in world.classes:
            amounts = pod_class.amounts[:, None]
            expected = (nodes.idle[pod_class.columns] // amounts).min(axis=0).clip(0)
            rows = np.array([0, 2, nodes.capacity + 5])
            assert idle.on(pod_class, np.ones(world.nodes, dtype=np.bool_)) == expected[: world.nodes].sum()
            assert idle.on(pod_class, rows) == expected[[0, 2]].sum()


def test_changed_times_of_a_pod_count_only_with_another_end() -> None:
    world = World(1, 4, 400)
    world.future.advance(world.now, ())
    known = world.future.pod_ends.follow()
    world.future.pod_ends.pop_changed()
    pod = world.state.pods[world.uids[0]].pod
    world.state.apply(PodUpdated(msgspec.structs.replace(pod, bound=pod.bound - 5)))
    assert world.future.pod_ends.follow() == known
    later = RunTime(pod.run_time.limit + 60)
    world.state.apply(PodUpdated(msgspec.structs.replace(pod, run_time=later)))
    assert world.future.pod_ends.follow() == known + 1
    assert world.future.pod_ends.pop_changed() == {world.state.pods[pod.uid].row}
