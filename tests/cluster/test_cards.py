"""Card allocation against a literal implementation of the rules: card by card, pod by pod, container by
container.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.cluster.devices.cards import CardPolicy
from phalanx.cluster.devices.shared import SHARED_DEVICES, Given, SharedDevices
from phalanx.cluster.state import ClusterState
from phalanx.model.devices.cards import Card, CardHold, CardShare, DeviceNeed, Family, NodeCards
from phalanx.model.events import AllocatorFact, NodeRemoved, NodeUpdated, PodRemoved, PodUpdated
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass

# The reference cannot follow the order of `random`: that policy has its own test.
ORDERED = [policy for policy in CardPolicy if policy is not CardPolicy.RANDOM]
ROOMY = (("cpu", 10**6), ("memory", 2**50), ("pods", 10**4))


class Literal:
    """One node's cards as plain numbers."""

    def __init__(self, cards: tuple[Card, ...]) -> None:
        self.cards = cards
        self.memory = [0] * len(cards)
        self.cores = [0] * len(cards)
        self.users = [0] * len(cards)
        self.groups: list[set[str]] = [set() for _ in cards]

    def give(self, need: DeviceNeed, policy: CardPolicy, group: str) -> tuple[tuple[CardHold, ...], ...] | None:
        """Allocate cards to the pod. Return None, without a change, where it does not fit."""
        before = [*self.memory], [*self.cores], [*self.users]
        shares = []
        for share in need.shares:
            mine: list[int] = []
            for _ in range(share.count):
                fitting = [at for at in range(len(self.cards)) if at not in mine and self.fits(at, need, share)]
                if not fitting:
                    self.memory, self.cores, self.users = before
                    return None
                at = self._choose(fitting, policy)
                mine.append(at)
                self.use(at, share)
            holds = (CardHold(need.family, self.cards[at].id, self._asked(at, share), share.cores) for at in mine)
            shares.append(tuple(holds))
        given_ids = {hold.card for share in shares for hold in share}
        for at, card in enumerate(self.cards):
            if group and card.id in given_ids:
                self.groups[at].add(group)
        return tuple(shares)

    def use(self, at: int, share: CardShare) -> None:
        self.memory[at] += self._asked(at, share)
        self.cores[at] += share.cores
        self.users[at] += 1

    def _asked(self, at: int, share: CardShare) -> int:
        return self.cards[at].memory * share.percent // 100 if share.percent else share.memory

    def fits(self, at: int, need: DeviceNeed, share: CardShare) -> bool:
        card = self.cards[at]
        kind = card.kind.upper()
        rules = (
            card.healthy and card.family is need.family,
            not need.kinds or any(wanted.upper() in kind for wanted in need.kinds),
            not any(other.upper() in kind for other in need.other_kinds),
            not need.ids or card.id in need.ids,
            card.id not in need.other_ids,
            not need.mode or card.mode == need.mode,
            not need.group or need.group not in self.groups[at],
            self.users[at] < card.slots,
            self.memory[at] + self._asked(at, share) <= card.memory,
            self.cores[at] + share.cores <= 100,
            need.family is Family.KOORDINATOR or share.cores != 100 or not self.users[at],
            need.family is Family.KOORDINATOR or share.cores or self.cores[at] < 100,
        )
        return all(rules)

    def _choose(self, fitting: list[int], policy: CardPolicy) -> int:
        match policy:
            case CardPolicy.BINPACK:
                return max(fitting, key=lambda at: (self.memory[at], -at))
            case CardPolicy.SPREAD:
                return min(fitting, key=lambda at: (self.users[at], at))
        return fitting[-1]


class Bench:
    """A cluster with direct access to its card allocator."""

    def __init__(self, policy: CardPolicy) -> None:
        self.state = ClusterState()
        allocator = self.state.nodes.allocators[SHARED_DEVICES]
        assert isinstance(allocator, SharedDevices)
        self.allocator = allocator
        self.allocator.configure(Family, policy)
        self.number = 0

    def node(self, name: str, cards: tuple[Card, ...]) -> int:
        self.state.apply(NodeUpdated(Node(name, allocatable=ROOMY, cards=cards)))
        return self.state.nodes.row(name)

    def copies(self, need: DeviceNeed) -> list[int]:
        cls = self.state.classes.record(PodClass(devices=need))
        rows = self.state.nodes.rows()
        found: list[int] = self.allocator.copies(cls.spec, rows).tolist()
        assert self.allocator.copies(cls.spec, slice(None))[rows].tolist() == found
        return found

    def take(self, need: DeviceNeed, row: int, gang: str = "") -> Given | None:
        self.number += 1
        pod = Pod(
            "ns", f"p{self.number}", f"p{self.number}", PodClass(devices=need), scheduler="phalanx", gang=gang
        )
        self.state.apply(PodUpdated(pod))
        taken = self.allocator.take(pod, row)
        assert taken is None or isinstance(taken, Given)
        return taken


def cards_of(family: Family) -> st.SearchStrategy[tuple[Card, ...]]:
    one = st.builds(
        Card,
        family=st.just(family),
        id=st.just(""),
        memory=st.integers(0, 12),
        slots=st.integers(1, 4),
        kind=st.sampled_from(["NVIDIA-A100", "NVIDIA-V100", ""]),
        mode=st.sampled_from(["hami-core", ""]),
        healthy=st.sampled_from([True, True, True, False]),
    )
    return st.lists(one, max_size=4).map(
        lambda cards: tuple(msgspec.structs.replace(card, id=str(at)) for at, card in enumerate(cards))
    )


def needs(family: Family) -> st.SearchStrategy[DeviceNeed]:
    share = st.builds(
        CardShare,
        count=st.integers(1, 3),
        memory=st.integers(0, 6),
        percent=st.sampled_from([0, 0, 25, 50, 100]),
        cores=st.sampled_from([0, 0, 10, 40, 50, 100]),
    )
    return st.builds(
        DeviceNeed,
        family=st.just(family),
        shares=st.lists(share, min_size=1, max_size=3).map(tuple),
        kinds=st.sampled_from([(), (), ("a100",), ("A100", "v100")]),
        other_kinds=st.sampled_from([(), (), ("v100",)]),
        ids=st.sampled_from([(), (), ("0", "2")]),
        other_ids=st.sampled_from([(), (), ("1",)]),
        mode=st.sampled_from(["", "", "hami-core"]),
        group=st.sampled_from(["", "", "ns/g"]),
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[Family, tuple[Card, ...], list[DeviceNeed]]:
    family = draw(st.sampled_from(list(Family)))
    return family, draw(cards_of(family)), draw(st.lists(needs(family), min_size=1, max_size=6))


@pytest.mark.thorough
@given(history=histories(), policy=st.sampled_from(ORDERED))
def test_pods_get_the_cards_of_the_reference_rules(
    history: tuple[Family, tuple[Card, ...], list[DeviceNeed]], policy: CardPolicy
) -> None:
    _, cards, asked = history
    bench, literal = Bench(policy), Literal(cards)
    row = bench.node("n", cards)
    for need in asked:
        gang = "g" if need.group else ""
        # Exactly the returned number of copies fits, one after the other.
        rehearsal = Literal(cards)
        rehearsal.memory, rehearsal.cores = [*literal.memory], [*literal.cores]
        rehearsal.users, rehearsal.groups = [*literal.users], [set(groups) for groups in literal.groups]
        fitting = 0
        while rehearsal.give(need, policy, need.group) is not None:
            fitting += 1
        assert bench.copies(need) == [fitting]
        expected = literal.give(need, policy, need.group)
        taken = bench.take(need, row, gang)
        assert (taken.shares if taken else None) == expected
        for at, card in enumerate(cards):
            now = literal.memory[at], literal.cores[at], literal.users[at]
            assert bench.allocator.use(row, card.family, card.id) == now


@given(history=histories())
def test_random_policy_chooses_fitting_cards_and_is_reproducible(
    history: tuple[Family, tuple[Card, ...], list[DeviceNeed]],
) -> None:
    _, cards, asked = history
    bench, again, literal = Bench(CardPolicy.RANDOM), Bench(CardPolicy.RANDOM), Literal(cards)
    row = bench.node("n", cards)
    again.node("n", cards)
    for need in asked:
        gang = "g" if need.group else ""
        copies = bench.copies(need)[0]
        taken, same = bench.take(need, row, gang), again.take(need, row, gang)
        assert (taken is not None) == (copies > 0)
        assert (taken.shares if taken else None) == (same.shares if same else None)
        for share, holds in zip(need.shares, taken.shares if taken else (), strict=bool(taken)):
            assert len({hold.card for hold in holds}) == share.count
            for hold in holds:
                at = int(hold.card)
                assert literal.fits(at, need, share)
                literal.use(at, share)
        for hold in [hold for holds in (taken.shares if taken and need.group else ()) for hold in holds]:
            literal.groups[int(hold.card)].add(need.group)


@pytest.mark.slow
@pytest.mark.thorough
@given(
    families=st.lists(st.sampled_from(list(Family)), min_size=1, max_size=3),
    data=st.data(),
    policy=st.sampled_from(list(CardPolicy)),
)
def test_all_nodes_at_once_equal_each_node_on_its_own(
    families: list[Family], data: st.DataObject, policy: CardPolicy
) -> None:
    bench, nodes = Bench(policy), [data.draw(cards_of(family)) for family in families]
    for number, cards in enumerate(nodes):
        bench.node(f"n{number}", cards)
    for _ in range(3):
        need = data.draw(needs(data.draw(st.sampled_from(families))))
        row = data.draw(st.integers(0, len(nodes) - 1))
        together = bench.copies(need)
        cls = bench.state.classes.record(PodClass(devices=need))
        alone = [
            int(bench.allocator.copies(cls.spec, np.array([row], dtype=np.intp))[0]) for row in range(len(nodes))
        ]
        assert together == alone
        taken = bench.take(need, row)
        assert (taken is None) == (together[row] == 0)


def test_released_cards_equal_cards_that_were_never_allocated() -> None:
    bench = Bench(CardPolicy.BINPACK)
    row = bench.node("n", (VGPU, msgspec.structs.replace(VGPU, id="GPU-2")))
    need = DeviceNeed(Family.VGPU, (CardShare(count=2, memory=400, cores=30),))
    first = bench.take(need, row, "g")
    second = bench.take(need, row)
    assert first is not None
    assert second is not None
    bench.allocator.book(first, row, -1)
    assert bench.allocator.use(row, Family.VGPU, "GPU-1") == (400, 30, 1)
    bench.allocator.book(second, row, -1)
    assert bench.allocator.use(row, Family.VGPU, "GPU-1") == (0, 0, 0)
    assert bench.copies(need) == [2]


VGPU = Card(Family.VGPU, "GPU-1", memory=1000, slots=10, kind="NVIDIA-A100", mode="hami-core")
HALF = DeviceNeed(Family.VGPU, (CardShare(percent=50),))
MOST = DeviceNeed(Family.VGPU, (CardShare(memory=600, cores=10),))


def bound(name: str, *cards: str, need: DeviceNeed = MOST, gang: str = "") -> Pod:
    return Pod("ns", name, name, PodClass(devices=need), node="n", cards=cards, gang=gang)


class TestCardChanges:
    def test_pods_of_other_schedulers_count_by_their_annotations(self) -> None:
        bench = Bench(CardPolicy.LAST)
        bench.node("n", (VGPU,))
        bench.state.apply(PodUpdated(bound("a", "GPU-1")))
        assert bench.copies(HALF) == [0]
        bench.state.apply(PodRemoved("a"))
        assert bench.copies(HALF) == [2]

    def test_pods_can_be_observed_before_their_node(self) -> None:
        bench = Bench(CardPolicy.LAST)
        bench.state.apply(PodUpdated(bound("a", "GPU-1")))
        bench.node("n", (VGPU,))
        assert bench.copies(HALF) == [0]

    def test_broken_card_is_not_allocated_and_keeps_its_users_until_repaired(self) -> None:
        bench = Bench(CardPolicy.LAST)
        row = bench.node("n", (VGPU,))
        bench.state.apply(PodUpdated(bound("a", "GPU-1")))
        bench.node("n", (msgspec.structs.replace(VGPU, healthy=False),))
        assert bench.copies(HALF) == [0]
        bench.node("n", ())
        assert bench.copies(HALF) == [0]
        bench.node("n", (VGPU,))
        assert bench.copies(HALF) == [0]
        assert bench.allocator.use(row, Family.VGPU, "GPU-1") == (600, 10, 1)

    def test_reused_row_has_no_cards_of_its_former_node(self) -> None:
        bench = Bench(CardPolicy.LAST)
        bench.node("n", (VGPU,))
        bench.state.apply(PodUpdated(bound("a", "GPU-1")))
        bench.state.apply(NodeRemoved("n"))
        bench.node("other", (VGPU,))
        assert bench.copies(HALF) == [2]

    def test_two_cards_with_one_id_are_one(self) -> None:
        bench = Bench(CardPolicy.LAST)
        bench.node("n", (VGPU, VGPU))
        assert bench.copies(HALF) == [2]

    def test_device_object_can_be_added_and_removed_before_its_node(self) -> None:
        bench = Bench(CardPolicy.LAST)
        need = DeviceNeed(Family.KOORDINATOR, (CardShare(percent=50, cores=50),))
        card = Card(Family.KOORDINATOR, "0", memory=100, slots=99)
        bench.state.apply(AllocatorFact(SHARED_DEVICES, NodeCards("n", Family.KOORDINATOR, (card,))))
        bench.node("n", (VGPU,))
        assert bench.copies(need) == [2]
        assert bench.copies(HALF) == [2]
        relief = bench.state.capacity_version
        bench.state.apply(AllocatorFact(SHARED_DEVICES, NodeCards("n", Family.KOORDINATOR, ())))
        assert bench.copies(need) == [0]
        bench.state.apply(AllocatorFact(SHARED_DEVICES, NodeCards("n", Family.KOORDINATOR, (card, card))))
        assert bench.state.capacity_version > relief


def test_group_can_exclude_its_own_members_from_cards() -> None:
    bench = Bench(CardPolicy.BINPACK)
    row = bench.node("n", (VGPU, msgspec.structs.replace(VGPU, id="GPU-2")))
    apart = DeviceNeed(Family.VGPU, (CardShare(memory=10),), group="ns/g")
    assert bench.copies(apart) == [2]
    bench.take(DeviceNeed(Family.VGPU, (CardShare(memory=10),)), row, "g")  # a member without its own exclusion
    assert bench.copies(apart) == [1]
    assert bench.copies(msgspec.structs.replace(apart, group="ns/other")) == [2]


def test_many_small_pods_are_counted_up_to_the_pod_limit_of_a_kubelet() -> None:
    bench = Bench(CardPolicy.SPREAD)
    bench.node("n", (Card(Family.GPU_SHARE, "0", memory=10**6, slots=2**31),))
    assert bench.copies(DeviceNeed(Family.GPU_SHARE, (CardShare(memory=1),))) == [1024]


SECOND = msgspec.structs.replace(VGPU, id="GPU-2")
PAIR = DeviceNeed(Family.VGPU, (CardShare(count=2, memory=300, cores=10),))


class TestCardAnnotations:
    """The owner of a pod can have written the annotation."""

    def used(self, *claimed: str, need: DeviceNeed, cards: tuple[Card, ...] = (VGPU, SECOND)) -> list[int]:
        """Return the memory in use of each card."""
        self.bench = Bench(CardPolicy.LAST)
        row = self.bench.node("n", cards)
        self.bench.state.apply(PodUpdated(bound("a", *claimed, need=need)))
        return [self.bench.allocator.use(row, Family.VGPU, card.id)[0] for card in cards]

    def test_annotated_cards_are_charged_with_the_requested_amounts(self) -> None:
        assert self.used("GPU-2", "GPU-1", need=PAIR) == [300, 300]
        assert not self.bench.allocator.doubts

    @pytest.mark.parametrize("claimed", ["GPU-1 GPU-2", "GPU-1 GPU-1", "GPU-1 GPU-9"])
    def test_annotation_with_more_cards_than_requested_is_distrusted(self, claimed: str) -> None:
        assert self.used(*claimed.split(), need=MOST) == [600, 0]
        assert "more cards than it requests" in self.bench.allocator.doubts["a"].doubt

    @pytest.mark.parametrize("claimed", ["", "GPU-9"])
    def test_pod_with_unknown_cards_is_charged_to_the_freest_card(self, claimed: str) -> None:
        small = msgspec.structs.replace(VGPU, memory=700)
        assert self.used(*claimed.split(), need=MOST, cards=(small, SECOND)) == [0, 600]
        assert self.bench.allocator.doubts["a"]

    def test_plausible_part_of_an_annotation_is_used(self) -> None:
        assert self.used("GPU-2", "GPU-2", need=PAIR) == [300, 300]
        assert self.bench.allocator.doubts["a"]

    def test_pod_without_card_requests_holds_no_card(self) -> None:
        bench = Bench(CardPolicy.LAST)
        row = bench.node("n", (VGPU,))
        bench.state.apply(PodUpdated(Pod("ns", "a", "a", PodClass(), node="n", cards=("GPU-1",))))
        assert bench.allocator.use(row, Family.VGPU, "GPU-1") == (0, 0, 0)

    def test_annotated_card_counts_once_its_node_publishes_it(self) -> None:
        assert self.used("GPU-2", need=MOST, cards=(VGPU,)) == [600]
        self.bench.node("n", (VGPU, SECOND))
        assert [self.bench.allocator.use(0, Family.VGPU, card)[0] for card in ("GPU-1", "GPU-2")] == [0, 600]
        assert not self.bench.allocator.doubts

    def test_doubt_about_a_pod_is_forgotten_when_it_is_deleted(self) -> None:
        self.used(need=MOST)
        self.bench.state.apply(PodRemoved("a"))
        assert not self.bench.allocator.doubts
        assert self.bench.allocator.use(0, Family.VGPU, "GPU-1") == (0, 0, 0)
