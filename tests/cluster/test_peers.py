"""Counts of matching pods for inter-pod rules, in random histories of pods, nodes and namespaces."""

from __future__ import annotations

import random

import pytest

from phalanx.cluster.state import ClusterState
from phalanx.model.events import NamespaceLabelled, NodeRemoved, NodeUpdated, PodRemoved, PodUpdated
from phalanx.model.node import Node
from phalanx.model.peers import Peers, PeerTerm, PodSelection, PreferredPeers, Spread
from phalanx.model.pod import MemberState, Pod, PodClass, PodPhase
from phalanx.model.resources import requests_of
from phalanx.model.selectors import Requirement
from tests.extent import examples

from .audit import audit

SPACES, APPS, KEYS = ("n1", "n2"), ("a", "b", "c"), ("zone", "host")


class History:
    """Draw one possible event after another."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.state = ClusterState()

    def selection(self) -> PodSelection:
        draw = self.draw
        app = tuple(sorted(draw.sample(APPS, draw.choice([1, 1, 2]))))
        selector = draw.choice(
            [
                (Requirement("app", "In", app),),
                (Requirement("app", "In", app), Requirement("tier", "Exists")),
                (Requirement("app", "NotIn", app),),
                (),
                None,
            ]
        )
        spaces = draw.choice([None, None, (), (Requirement("team", "In", ("red",)),)])
        return PodSelection(selector, tuple(sorted(draw.sample(SPACES, draw.randint(0, 2)))), spaces)

    def term(self) -> PeerTerm:
        return PeerTerm(self.selection(), self.draw.choice(KEYS))

    def peers(self) -> Peers:
        draw = self.draw
        if draw.random() < 0.4:
            return Peers()
        return Peers(
            affinity=tuple(self.term() for _ in range(draw.choice([0, 0, 1, 2]))),
            anti=tuple(self.term() for _ in range(draw.choice([0, 1]))),
            preferred=tuple(PreferredPeers(self.term(), draw.choice([5, -5])) for _ in range(draw.choice([0, 1]))),
            spread=tuple(Spread(self.selection(), draw.choice(KEYS)) for _ in range(draw.choice([0, 1]))),
        )

    def pod(self) -> Pod:
        draw = self.draw
        labels = {"app": draw.choice(APPS)} | ({"tier": "x"} if draw.random() < 0.5 else {})
        node = draw.choice(["", "", "w0", "w1", "w2", "w3"])
        number = draw.randint(0, 9)
        name = f"p{number}"
        return Pod(
            SPACES[number % 2],
            name,
            name,
            PodClass(requests=requests_of({"cpu": 1}), peers=self.peers()),
            requests_of({"cpu": 1}),
            scheduler=draw.choice(["phalanx", "other"]),
            node=node,
            phase=PodPhase.RUNNING if node else draw.choice([PodPhase.PENDING, PodPhase.SUCCEEDED]),
            terminating=draw.random() < 0.2,
            labels=tuple(sorted(labels.items())),
        )

    def node(self) -> Node:
        draw = self.draw
        labels = {key: draw.choice("xyz") for key in KEYS if draw.random() < 0.8}
        return Node(
            f"w{draw.randint(0, 3)}", allocatable=requests_of({"cpu": 9, "pods": 9}), labels=tuple(labels.items())
        )

    def step(self) -> None:
        draw, state = self.draw, self.state
        match draw.randint(0, 9):
            case 0 | 1 | 2 | 3:
                state.apply(PodUpdated(self.pod()))
            case 4:
                state.apply(PodRemoved(f"p{draw.randint(0, 9)}"))
            case 5 | 6:
                state.apply(NodeUpdated(self.node()))
            case 7:
                state.apply(NodeRemoved(f"w{draw.randint(0, 3)}"))
            case 8:
                labels = (("team", draw.choice(["red", "blue"])),) if draw.random() < 0.7 else ()
                state.apply(NamespaceLabelled(draw.choice(SPACES), labels))
            case _:
                self.plan()

    def plan(self) -> None:
        """Place waiting pods and commit or roll back; or evict a pod, or cancel its eviction."""
        draw, state = self.draw, self.state
        rows = state.nodes.rows().tolist()
        waiting = [record for record in state.pods.values() if record.state is MemberState.PENDING]
        running = [record for record in state.pods.values() if record.state is MemberState.RUNNING]
        if running and draw.random() < 0.5:
            record = draw.choice(running)
            state.pods.mark_evicting(record)
            audit(state)
            if draw.random() < 0.5:
                state.pods.eviction_refused(record.pod.uid, 0.0)
        elif waiting and rows:
            transaction = state.transaction()
            record = draw.choice(waiting)
            gone = draw.sample(running, len(running) // 2)
            transaction.remove(gone)
            transaction.place(record.pod_class, [record], [draw.choice(rows)])
            if gone or draw.random() < 0.5:
                transaction.rollback()
                return
            for placed, row in transaction.commit():
                state.pods.assume(placed, row, None)
            if draw.random() < 0.3:
                state.pods.binding_failed(record.pod.uid)

    def ask(self) -> None:
        """Check that only requested rules are counted."""
        book = self.state.nodes.affinity
        for match_set in book.match_sets.values():
            key = self.draw.choice(KEYS)
            book.counter(key, (match_set.present, 1), (match_set.leaving, -1))
            for stated in (match_set.repelling, match_set.drawing, match_set.leaning):
                for place, tally in stated.items():
                    book.counter(place, (tally, 1))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(30)))
def test_incremental_peer_counts_equal_a_recount(seed: int) -> None:
    history = History(seed)
    for number in range(120):
        history.step()
        if number % 7 == 0:
            history.ask()
        audit(history.state)


def test_rules_without_a_pod_are_forgotten() -> None:
    history = History(0)
    state = history.state
    for number in range(500):
        whom = PodSelection((Requirement("app", "In", (f"app-{number}",)),), ("n1",))
        peers = Peers(anti=(PeerTerm(whom, "zone"),))
        pod = Pod("n1", "p", "p", PodClass(peers=peers), scheduler="phalanx", labels=(("app", f"app-{number}"),))
        state.apply(PodUpdated(pod))
        state.apply(PodRemoved("p"))
        audit(state)
    assert len(state.nodes.affinity.match_sets) < 100


def test_equal_inter_pod_rules_are_one_class_whatever_the_other_labels() -> None:
    state = ClusterState()
    for name, labels in (
        ("a", {"app": "x", "index": "1"}),
        ("b", {"app": "x", "index": "2"}),
        ("c", {"index": "3"}),
    ):
        state.apply(PodUpdated(Pod("n", name, name, PodClass(), scheduler="phalanx", labels=tuple(labels.items()))))
    assert len({state.pods[name].pod_class for name in "abc"}) == 1
    whom = PodSelection((Requirement("app", "In", ("x",)),), ("n",))
    guard = PodClass(peers=Peers(anti=(PeerTerm(whom, "zone"),)))
    state.apply(PodUpdated(Pod("n", "guard", "guard", guard, scheduler="phalanx")))
    assert state.pods["a"].pod_class is state.pods["b"].pod_class
    assert state.pods["a"].pod_class is not state.pods["c"].pod_class
    assert state.pods["a"].pod_class.dynamic
    assert not state.pods["c"].pod_class.dynamic
