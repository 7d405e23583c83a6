"""Hierarchical dominant resource fairness."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phalanx.scheduling.quota.hdrf import ONE, HdrfNode, Hierarchy, first, turn


class Play:
    """Start one task after the other of the leaf that is first, until no task fits."""

    def __init__(self, **total: int) -> None:
        self.total = total
        self.idle = dict(total)
        self.hierarchy = Hierarchy(total)
        self.leaves: dict[str, HdrfNode] = {}
        self.held: dict[str, dict[str, int]] = {}
        self.asked: dict[str, dict[str, int]] = {}
        self.task: dict[str, dict[str, int]] = {}

    def leaf(self, path: str, weights: str, tasks: int, **task: int) -> None:
        """Leaf with name and weight as in Volcano's annotations, from the root on."""
        levels = zip(path.split("/")[1:], map(int, weights.split("/")[1:]), strict=True)
        self.leaves[path] = self.hierarchy.node(levels)
        self.task[path], self.held[path] = task, dict.fromkeys(task, 0)
        self.asked[path] = {r: n * tasks for r, n in task.items()}
        self.hierarchy.set(self.leaves[path], self.held[path], self.asked[path])

    def run(self) -> dict[str, dict[str, int]]:
        self.hierarchy.compute()
        waiting = dict(self.leaves)
        while waiting:
            node = first(list(waiting.values()))
            path = next(path for path, leaf in waiting.items() if leaf is node)
            task = self.task[path]
            if not self.asked[path] or any(self.idle[r] < n for r, n in task.items()):
                del waiting[path]
                continue
            for r, n in task.items():
                self.idle[r] -= n
                self.held[path][r] += n
                self.asked[path][r] -= n
            self.asked[path] = {r: n for r, n in self.asked[path].items() if n}
            self.hierarchy.update(node, self.held[path], self.asked[path])
            self.hierarchy.exhaust(r for r, n in self.idle.items() if not n)
        return self.held


def test_children_with_different_dominant_resources_do_not_starve_each_other() -> None:
    """Volcano's "rescaling test": 10 CPUs, 10 G; sci uses both, eng's dev CPU only, eng's prod memory only."""
    play = Play(cpu=10, memory=10)
    play.leaf("root/sci", "100/50", 10, cpu=1, memory=1)
    play.leaf("root/eng/dev", "100/50/50", 10, cpu=1)
    play.leaf("root/eng/prod", "100/50/50", 10, memory=1)
    assert play.run() == {
        "root/sci": {"cpu": 5, "memory": 5},
        "root/eng/dev": {"cpu": 5},
        "root/eng/prod": {"memory": 5},
    }


def test_blocked_child_does_not_raise_the_share_of_its_sibling() -> None:
    """Volcano's "blocking nodes test": 30 CPUs, 30 G; memory is shared half and half although CPU ran out."""
    play = Play(cpu=30, memory=30)
    play.leaf("root/pg1", "100/25", 30, cpu=1)
    play.leaf("root/pg2", "100/25", 30, cpu=1)
    play.leaf("root/pg3/pg31", "100/25/50", 30, cpu=1)
    play.leaf("root/pg3/pg32", "100/25/50", 30, memory=1)
    play.leaf("root/pg4", "100/25", 30, memory=1)
    assert play.run() == {
        "root/pg1": {"cpu": 10},
        "root/pg2": {"cpu": 10},
        "root/pg3/pg31": {"cpu": 10},
        "root/pg3/pg32": {"memory": 15},
        "root/pg4": {"memory": 15},
    }


def test_hdrf_shares_match_the_first_figure_of_the_design() -> None:
    """n2's child with all CPU is scaled to its sibling's half of the GPUs: n2 has a share of one half."""
    hierarchy = Hierarchy({"cpu": 10, "gpu": 10})
    hierarchy.set(hierarchy.node([("n1", 50)]), {"gpu": 5}, {"gpu": 5})
    hierarchy.set(hierarchy.node([("n2", 50), ("n21", 50)]), {"cpu": 10}, {"cpu": 1})
    hierarchy.set(hierarchy.node([("n2", 50), ("n22", 50)]), {"gpu": 5}, {"gpu": 5})
    hierarchy.compute()
    parent = hierarchy.node([("n2", 50)])
    assert parent.parts == {"cpu": ONE // 2, "gpu": ONE // 2}
    assert parent.share == ONE // 2
    assert not parent.saturated


def test_weights_decide_between_siblings() -> None:
    play = Play(cpu=12)
    play.leaf("root/sci", "1/1", 20, cpu=1)
    play.leaf("root/eng/dev", "1/3/2", 20, cpu=1)
    play.leaf("root/eng/prod", "1/3/1", 20, cpu=1)
    held = play.run()
    assert held["root/sci"] == {"cpu": 3}
    assert held["root/eng/dev"]["cpu"] + held["root/eng/prod"]["cpu"] == 9


def test_a_saturated_child_counts_in_full() -> None:
    hierarchy = Hierarchy({"cpu": 10})
    hierarchy.set(hierarchy.node([("eng", 1), ("done", 1)]), {"cpu": 6}, {})
    hierarchy.set(hierarchy.node([("eng", 1), ("hungry", 1)]), {"cpu": 2}, {"cpu": 2})
    hierarchy.compute()
    assert hierarchy.node([("eng", 1)]).parts == {"cpu": 6 * ONE // 10 + 2 * ONE // 10}


def test_queue_that_cannot_grow_is_ordered_last_whatever_its_share() -> None:
    hierarchy = Hierarchy({"cpu": 10, "gpu": 4})
    poor = hierarchy.node([("poor", 1)])
    rich = hierarchy.node([("rich", 1)])
    hierarchy.set(poor, {}, {"cpu": 1, "gpu": 1})
    hierarchy.set(rich, {"cpu": 5}, {"cpu": 1})
    hierarchy.compute()
    assert turn(poor) < turn(rich)
    hierarchy.exhaust(["gpu"])
    assert turn(rich) < turn(poor)


def test_equal_shares_are_ordered_by_the_next_level() -> None:
    hierarchy = Hierarchy({"cpu": 10})
    nodes = [hierarchy.node([("a", 1), ("x", 1)]), hierarchy.node([("a", 1), ("y", 1)])]
    hierarchy.set(nodes[0], {"cpu": 2}, {"cpu": 1})
    hierarchy.set(nodes[1], {"cpu": 1}, {"cpu": 1})
    hierarchy.compute()
    assert first(nodes) is nodes[1]


def test_resources_that_the_cluster_lacks_do_not_count() -> None:
    hierarchy = Hierarchy({"cpu": 10})
    leaf = hierarchy.node([("a", 1)])
    hierarchy.update(leaf, {"example.com/gone": 3, "cpu": 1}, {"cpu": 1})
    assert leaf.share == ONE // 10


paths = st.sampled_from(["a/b", "a/c", "a/d/e", "a/d/f", "g"])
amounts = st.dictionaries(st.sampled_from(["cpu", "gpu"]), st.integers(0, 20))
moves = st.lists(st.tuples(paths, amounts, st.just({}) | st.just({"cpu": 1}) | st.just({"gpu": 1})), max_size=12)


@given(moves, st.booleans())
def test_hdrf_order_one_task_at_a_time_equals_the_order_of_all_at_once(
    moves: list[tuple[str, dict[str, int], dict[str, int]]], full: bool
) -> None:
    def levels(path: str) -> list[tuple[str, int]]:
        return [(name, ord(name)) for name in path.split("/")]

    total = {"cpu": 50, "gpu": 30}
    stepwise, at_once = Hierarchy(total), Hierarchy(total)
    for hierarchy in (stepwise, at_once):
        for path in ("a/b", "a/c", "a/d/e", "a/d/f", "g"):
            hierarchy.node(levels(path))
    for path, held, asked in moves:
        stepwise.update(stepwise.node(levels(path)), held, asked)
        at_once.set(at_once.node(levels(path)), held, asked)
    for hierarchy in (stepwise, at_once):
        hierarchy.exhaust(["gpu"] if full else [])
    at_once.compute()
    for path in ("a", "a/b", "a/c", "a/d", "a/d/e", "a/d/f", "g"):
        one, other = stepwise.node(levels(path)), at_once.node(levels(path))
        assert (one.parts, one.share, turn(one)) == (other.parts, other.share, turn(other))
