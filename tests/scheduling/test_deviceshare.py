"""Gangs and quotas with shares of GPUs: every unit sees the present state of all cards."""

from __future__ import annotations

import random
from typing import Self

import pytest

from phalanx.cluster.devices.held import Held
from phalanx.cluster.devices.shared import SHARED_DEVICES, Given, SharedDevices
from phalanx.model.devices.cards import Card, CardShare, DeviceNeed, Family
from phalanx.model.events import NodeUpdated
from phalanx.model.node import Node
from phalanx.model.pod import MemberState, PodClass
from phalanx.model.resources import requests_of
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.policy.loader import load_policy

from ..extent import examples
from .scenario import Scenario

MEMORY = "volcano.sh/vgpu-memory"


def policy(extra: str = "", actions: str = "enqueue, allocate, backfill", **arguments: object) -> str:
    stated = {"deviceshare.VGPUEnable": True} | {f"deviceshare.{key}": value for key, value in arguments.items()}
    listed = ", ".join(f"{key}: {str(value).lower()}" for key, value in stated.items())
    return f"""
actions: "{actions}"
tiers: [{{plugins: [{{name: priority}}, {{name: gang}}, {{name: predicates}}, {extra}
  {{name: deviceshare, arguments: {{{listed}}}}}]}}]
"""


class Gpus(Scenario):
    """Nodes with cards of 1,000 MiB; pods that request shares of them."""

    def __init__(self, text: str | None = None) -> None:
        super().__init__(text or policy())

    def cards(self, node: str, count: int, slots: int = 10) -> Self:
        cards = tuple(Card(Family.VGPU, f"{node}-{at}", 1000, slots, "A100", "hami-core") for at in range(count))
        offer = {"cpu": 64000, "pods": 110, MEMORY: 1000 * count, "volcano.sh/vgpu-number": slots * count}
        return self.observe(f"node {node}", NodeUpdated(Node(node, allocatable=requests_of(offer), cards=cards)))

    def ask(self, *shares: CardShare, **fields: object) -> PodClass:
        need = DeviceNeed(Family.VGPU, shares, **fields)  # type: ignore[arg-type]
        return PodClass(devices=need)

    def sharing(self, name: str, memory: int, *, count: int = 1, cores: int = 0, **fields: object) -> Self:
        share = CardShare(count=count, memory=memory, cores=cores)
        amounts = {MEMORY: memory * count, "volcano.sh/vgpu-number": count}
        return self.pod(name, pod_class=self.ask(share), **amounts, **fields)  # type: ignore[arg-type]

    def confirm(self, *names: str) -> Self:
        """Apply the annotations of the bindings, as the API server would."""
        for record in list(self.state.pods.values()):
            taken = record.allocated.get(SHARED_DEVICES)
            if record.state is MemberState.ASSUMED and isinstance(taken, Given):
                held = tuple(hold.card for share in taken.shares for hold in share)
                self.becomes(record.pod.uid, cards=held)
        return super().confirm(*names)

    def held(self, *names: str) -> dict[str, list[str]]:  # type: ignore[override]
        found = {}
        for name in names or self.placed():
            taken = self.state.pods[name].allocated.get(SHARED_DEVICES)
            assert isinstance(taken, Given | Held)
            found[name] = [hold.card for share in taken.shares for hold in share]
        return found

    def users(self, node: str) -> list[int]:
        allocator, row = self.state.nodes.allocators[SHARED_DEVICES], self.state.nodes.row(node)
        assert isinstance(allocator, SharedDevices)
        return [allocator.use(row, card.family, card.id)[2] for card in allocator.cards(row)]


def test_amounts_that_fit_a_node_but_no_card_are_refused() -> None:
    s = Gpus().cards("n", 2)
    for name in ("a", "b", "c"):
        s.sharing(name, 600)
    s.run()
    assert len(s.placed()) == 2
    assert "node(s) had no GPU with enough room for the pod" in s.why_pod(s.waiting()[0]).message


def test_members_of_a_gang_see_cards_allocated_to_each_other() -> None:
    s = Gpus().cards("n1", 2).cards("n2", 1)
    s.gang("g", 3, created=1)
    for number in range(3):
        s.sharing(f"g-{number}", 600, gang="g")
    s.run()
    assert sorted(card for cards in s.held().values() for card in cards) == ["n1-0", "n1-1", "n2-0"]


def test_gang_that_does_not_fit_allocates_no_card() -> None:
    s = Gpus().cards("n1", 2)
    s.gang("g", 3, created=1)
    for number in range(3):
        s.sharing(f"g-{number}", 600, gang="g")
    s.sharing("alone", 1000, created=2)
    s.run()
    assert s.placed() == ["alone"]
    assert sum(s.users("n1")) == 1


def test_cards_of_a_finished_pod_are_free() -> None:
    s = Gpus().cards("n", 1).sharing("a", 600).run()
    s.sharing("b", 600).run()
    assert s.waiting() == ["b"]
    s.finishes("a").run()
    assert s.held("b") == {"b": ["n-0"]}


def test_restart_preserves_the_cards_of_pods() -> None:
    s = Gpus().cards("n", 2).sharing("a", 600).sharing("b", 300).run()
    before = s.held()
    s.restart()
    assert s.held() == before
    s.sharing("c", 500).run()
    assert s.waiting() == []
    assert s.users("n") in ([1, 2], [2, 1])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("", ["n-1", "n-1"]), ("binpack", ["n-0", "n-0"]), ("spread", ["n-0", "n-1"])],
)
def test_policy_decides_which_card_is_allocated(name: str, expected: list[str]) -> None:
    s = Gpus(policy(SchedulePolicy=name) if name else None).cards("n", 2)
    s.sharing("a", 100).run()
    s.sharing("b", 100).run()
    assert [card for cards in s.held().values() for card in cards] == expected


@pytest.mark.parametrize(("name", "expected"), [("binpack", {"n2": 2}), ("spread", {"n1": 1, "n2": 1})])
def test_nodes_are_scored_by_cards_where_the_plugin_has_a_weight(name: str, expected: dict[str, int]) -> None:
    s = Gpus(policy(SchedulePolicy=name, ScheduleWeight=10)).cards("n1", 1).cards("n2", 1)
    s.sharing("there", 500, node="n2", more={"cards": ("n2-0",)})
    s.sharing("a", 100).run()
    assert s.where("a") == ("n2" if name == "binpack" else "n1")
    assert s.spread() == expected


def test_pods_of_a_spreading_group_get_different_cards() -> None:
    s = Gpus(policy(SchedulePolicy="binpack")).cards("n", 2)
    apart = s.ask(CardShare(memory=100), group="ns/g")
    s.gang("g", 2, created=1)
    s.pods("g", 3, gang="g", pod_class=apart)
    s.run()
    assert sorted(card for cards in s.held().values() for card in cards) == ["n-0", "n-1"]
    assert len(s.waiting()) == 1


def test_queue_is_charged_for_gpu_shares() -> None:
    s = Gpus(policy("{name: capacity},")).cards("n", 4)
    s.queue("q", capability={MEMORY: 1500})
    for number in range(3):
        s.sharing(f"p{number}", 300, count=2, queue="q", created=number)
    s.run()
    assert s.placed() == ["p0", "p1"]
    assert s.used(next(key for key in s.state.ledger.accounts if key.name == "q"), MEMORY) == 1200


def test_pod_of_higher_priority_preempts_the_pods_on_a_card() -> None:
    text = policy(actions="enqueue, allocate, preempt, backfill", extra="{name: conformance},")
    s = Gpus(text).cards("n", 1)
    s.sharing("low", 600, created=1).run()
    s.sharing("high", 600, priority=10)
    s.settle()
    assert s.evicted == ["low"]
    assert s.held("high") == {"high": ["n-0"]}


def test_binding_has_the_annotations_for_the_device_plugin() -> None:
    s = Gpus().cards("n", 2)
    s.now = 1_700_000_000
    s.sharing("a", 300, count=2, cores=25)
    s.run()
    (bind,) = [bind for plan in s.plans for bind in plan.binds]
    assert dict(bind.annotations)["volcano.sh/devices-to-allocate"] == "n-1,NVIDIA,300,25:n-0,NVIDIA,300,25:"
    assert dict(bind.annotations)["volcano.sh/vgpu-node"] == "n"
    assert dict(bind.annotations)["volcano.sh/vgpu-time"] == "1700000000"


def test_request_that_no_card_can_serve_is_reported_at_once() -> None:
    s = Gpus().cards("n", 2)
    s.pod("a", pod_class=PodClass(devices=DeviceNeed(Family.VGPU, problem="what it asks of GPUs cannot be read")))
    s.run()
    assert "what it asks of GPUs cannot be read" in s.why_pod("a").message


def test_repaired_card_wakes_waiting_pods() -> None:
    s = Gpus(policy(GPUSharingEnable=True))
    offer = requests_of({"cpu": 64000, "pods": 110, "volcano.sh/gpu-memory": 1000})
    for healthy in (False, True):
        card = Card(Family.GPU_SHARE, "0", 1000, 2**31, healthy=healthy)
        s.observe("node n", NodeUpdated(Node("n", allocatable=offer, cards=(card,))))
        if not healthy:
            s.pod("a", pod_class=PodClass(devices=DeviceNeed(Family.GPU_SHARE, (CardShare(memory=500),))))
        s.run()
    assert s.where("a") == "n"


class TestCordonedCard:
    def node(self, s: Gpus, *cordoned: int) -> Gpus:
        cards = tuple(
            Card(Family.VGPU, f"GPU-{at}", 1000, 10, "A100", "hami-core", cordoned=at in cordoned)
            for at in range(2)
        )
        offer = {"cpu": 64000, "pods": 110, MEMORY: 2000, "volcano.sh/vgpu-number": 20}
        s.observe("node n", NodeUpdated(Node("n", allocatable=requests_of(offer), cards=cards)))
        return s

    def test_new_pod_gets_another_card_and_a_running_one_keeps_its_card(self) -> None:
        s = self.node(Gpus(), 0).sharing("a", 400).run()
        assert s.held() == {"a": ["GPU-1"]}
        self.node(s, 1).run()
        assert s.held("a") == {"a": ["GPU-1"]}
        assert s.sharing("b", 400).run().held("b") == {"b": ["GPU-0"]}

    def test_pod_that_needs_the_card_waits_with_its_reason_until_the_card_is_open(self) -> None:
        s = self.node(Gpus(), 0, 1).sharing("a", 400).run()
        assert "1 node(s) had a GPU for the pod that is cordoned (hami.io/device-cordon)" in s.why_pod("a").message
        assert "no shared GPUs" not in s.why_pod("a").message
        self.node(s).run()
        assert s.placed() == ["a"]

    def test_gang_is_not_placed_in_part_beside_a_cordoned_card(self) -> None:
        s = self.node(Gpus(), 1).gang("g", 2)
        s.sharing("g-0", 800, gang="g").sharing("g-1", 800, gang="g").run()
        assert s.placed() == []
        assert "cordoned" in s.why("g").message

    def test_card_of_another_model_that_is_cordoned_is_no_reason(self) -> None:
        s = self.node(Gpus(), 0, 1)
        s.pod("a", pod_class=s.ask(CardShare(memory=1), kinds=("H100",))).run()
        assert "cordoned" not in s.why_pod("a").message


def test_without_the_plugin_cards_are_ignored() -> None:
    s = Gpus(policy(VGPUEnable=False)).cards("n", 1)
    s.sharing("a", 400).sharing("b", 400).run()
    assert s.placed() == ["a", "b"]
    assert s.users("n") == [0]
    assert all(not bind.annotations for plan in s.plans for bind in plan.binds)


def test_reasons_distinguish_cards() -> None:
    s = Gpus().cards("n", 1)
    s.node("plain")
    other = s.ask(CardShare(memory=1), kinds=("H100",))
    s.pod("a", pod_class=other).run()
    message = s.why_pod("a").message
    assert "1 node(s) had no shared GPUs" in message
    assert "1 node(s) had no GPU of the requested model, id or mode" in message


def test_arguments_are_checked_and_those_without_effect_are_reported() -> None:
    found = load_policy(policy(NodeLockEnable=True))
    assert any("deviceshare.NodeLockEnable is accepted but has no effect" in remark for remark in found.inactive)
    with pytest.raises(PolicyError, match="SchedulePolicy"):
        load_policy(policy(SchedulePolicy="tight"))


def test_cards_are_never_allocated_beyond_their_capacity() -> None:
    s = Gpus(policy(SchedulePolicy="spread")).cards("n1", 3, slots=2).cards("n2", 2, slots=3)
    for number in range(12):
        s.gang(f"g{number}", 2, created=number)
        for member in range(2):
            s.sharing(f"g{number}-{member}", 250 + 50 * (number % 3), gang=f"g{number}", cores=30)
    s.run()
    assert s.placed()
    allocator = s.state.nodes.allocators[SHARED_DEVICES]
    assert isinstance(allocator, SharedDevices)
    for node in ("n1", "n2"):
        row = s.state.nodes.row(node)
        for card in allocator.cards(row):
            memory, cores, users = allocator.use(row, card.family, card.id)
            assert (memory <= 1000, cores <= 100, users <= card.slots) == (True, True, True)


def test_whole_gpus_and_shares_use_the_same_cards() -> None:
    s = Gpus()
    cards = tuple(Card(Family.KOORDINATOR, str(at), 1000, 2**31) for at in range(2))
    for name, there in (("described", cards), ("plain", ())):
        offer = {"cpu": 64000, "pods": 110, "nvidia.com/gpu": 2}
        s.observe(f"node {name}", NodeUpdated(Node(name, allocatable=requests_of(offer), cards=there)))
    part = PodClass(devices=DeviceNeed(Family.KOORDINATOR, (CardShare(percent=50, cores=50),)))
    share = CardShare(percent=100, cores=100)
    whole = PodClass(devices=DeviceNeed(Family.KOORDINATOR, (share,), lenient=True))
    s.pod("part", pod_class=part).run()
    assert s.where("part") == "described"
    for number in range(4):
        s.pod(f"whole-{number}", pod_class=whole, gpu=1)
    s.run()
    assert s.spread("whole") == {"described": 1, "plain": 2}
    assert "1 node(s) had no GPU with enough room for the pod" in s.why_pod(s.waiting()[0]).message


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(12)))
def test_card_accounting_is_exact_in_a_random_history(seed: int) -> None:
    """After every step of a random history the accounting is compared with the pods (see the audit)."""
    draw = random.Random(seed)
    text = policy(
        actions="enqueue, allocate, preempt, backfill",
        extra="{name: conformance},",
        SchedulePolicy=draw.choice(["binpack", "spread"]),
    )
    s = Gpus(text)
    for number in range(3):
        s.cards(f"n{number}", draw.randint(1, 3), slots=draw.randint(1, 4))
    for step in range(25):
        match draw.randrange(6):
            case 0 | 1:
                s.gang(f"g{step}", draw.randint(1, 3), created=step)
                share = {"memory": draw.choice([200, 400, 700]), "count": draw.choice([1, 1, 2])}
                for member in range(3):
                    s.sharing(f"g{step}-{member}", gang=f"g{step}", priority=draw.randrange(3), **share)
            case 2:
                s.sharing(f"p{step}", draw.choice([300, 600]), cores=draw.choice([0, 50, 100]))
            case 3:
                for name in draw.sample(s.placed(), min(2, len(s.placed()))):
                    s.gone(name)
            case 4:
                s.cards(f"n{draw.randrange(3)}", draw.randint(0, 3), slots=draw.randint(1, 4))
            case 5:
                s.confirm().restart()
        s.cycle()
        if draw.random() < 0.5:
            s.confirm()
        if draw.random() < 0.5:
            s.depart()
