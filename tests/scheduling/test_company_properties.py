"""Properties of inter-pod affinity in random histories."""

from __future__ import annotations

import pytest

from phalanx.model.decisions import Plan
from phalanx.model.peers import Peers, PreferredPeers, Spread
from phalanx.model.pod import MemberState, PodClass

from ..extent import examples
from .scenario import PACKING, Scenario
from .test_company import HOST, ZONE, even, far, meaning, near
from .test_scheduler_properties import check_plan, decisions, needs, verdicts
from .worlds import GANGS, Script

STEPS = 50
# Evictions are off: then placed pods stay, and rules that held at placement can be checked later.
NODEORDER = """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}]}]
"""
APPS = ("a", "b")


def statements() -> list[Peers]:
    found = [Peers(), Peers()]
    for app in APPS:
        wish = PreferredPeers(near(app).affinity[0], 50)
        found += [near(app), far(app), far(app, ZONE), even(app), even(app, HOST), Peers(preferred=(wish,))]
        found.append(Peers(anti=far(app).anti, spread=(Spread(meaning(app), ZONE, 2),)))
    return found


class PeerScript(Script):
    """Random histories of pods with labels on nodes in zones."""

    def __init__(self, seed: int, *worlds: Scenario) -> None:
        super().__init__(seed, *worlds)
        self._peers = [PodClass(peers=peers) for peers in statements()]

    @classmethod
    def policy(cls, seed: int) -> str:
        return [NODEORDER, PACKING][seed % 2]

    def _node(self) -> None:
        draw, number = self.draw, self.draw.randrange(6)
        labels = {HOST: f"n{number}"} | ({ZONE: "xyz"[number % 3]} if draw.random() < 0.9 else {})
        self._tell("node", f"n{number}", cpu=draw.choice([2, 4]), pods=10, labels=labels)

    def _pods(self) -> None:
        draw = self.draw
        gang = draw.choice(["", *GANGS])
        cls, app = draw.choice(self._peers), draw.choice(APPS)
        for _ in range(draw.choice([1, 2, 4])):
            self._next += 1
            self._tell(
                "pod",
                f"p{self._next:03}",
                gang=gang,
                role=draw.choice(["", "ps", "worker"]),
                pod_class=cls if draw.random() < 0.8 else draw.choice(self._peers),
                created=draw.randrange(5),
                more={"labels": (("app", app if draw.random() < 0.8 else draw.choice(APPS)),)},
                cpu=1,
            )


def check_rules(world: Scenario, plan: Plan) -> None:
    """Check that no pod placed in this cycle violates its own anti-affinity or that of another pod."""
    nodes, fresh = world.state.nodes, {bind.uid for bind in plan.binds}
    there = [
        record
        for record in world.state.pods.values()
        if record.row >= 0 and record.state not in (MemberState.PENDING, MemberState.OTHER_SCHEDULER)
    ]
    for record in there:
        for term in record.pod.pod_class.peers.anti:
            mine = nodes.labels.of(record.row).get(term.key)
            for other in there:
                if other is record or {record.pod.uid, other.pod.uid}.isdisjoint(fresh):
                    continue
                meant = (
                    ("app", term.whom.selector[0].values[0]) in other.pod.labels if term.whom.selector else False
                )
                assert not (meant and mine is not None and nodes.labels.of(other.row).get(term.key) == mine)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(20)))
def test_plans_are_whole_and_respect_the_affinity_rules(seed: int) -> None:
    world = Scenario(PeerScript.policy(seed))
    script = PeerScript(seed, world)
    try:
        for _ in range(STEPS):
            script.step()
            before = needs(world)
            plan = world.cycle()
            check_plan(world, before, plan)
            check_rules(world, plan)
            world.work()
            plan = world.cycle()
            assert plan == Plan(plan.cycle), "something was done or said although nothing had changed"
    except AssertionError as error:
        error.add_note("\n".join(script.story))
        raise


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(20)))
def test_parking_does_not_change_decisions_with_affinity(seed: int) -> None:
    lazy, eager = Scenario(PeerScript.policy(seed)), Scenario(PeerScript.policy(seed))
    script = PeerScript(seed, lazy, eager)
    try:
        for _ in range(STEPS):
            script.step()
            lazy.work()
            eager.scheduler.use(eager.policy)
            eager.work()
            assert decisions(lazy) == decisions(eager)
            assert verdicts(lazy) == verdicts(eager)
    except AssertionError as error:
        error.add_note("\n".join(script.story))
        raise
