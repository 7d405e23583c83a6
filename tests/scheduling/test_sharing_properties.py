"""Queues and quotas in random worlds: limits hold, and parking does not change decisions."""

from __future__ import annotations

import pytest

from phalanx.model.account import AccountKey, Tree
from phalanx.model.pod import MemberState

from ..extent import examples
from .desk import Desk, policy
from .scenario import Scenario
from .worlds import GANGS, Script

POLICIES = [
    policy("name: priority", "name: overcommit", "name: drf", "name: proportion"),
    policy("name: priority", "name: capacity"),
    policy("name: priority", "name: drf, enableHierarchy: true"),
]
QUEUES = ["default", "qa", "qb", "qc", "qd"]
QUOTAS = ["ka", "kb", "kc"]
KINDS = ["node", "node", "no_node", "job", "job", "pods", "pods", "finish", "gone", "confirm", "fail"]
STEPS = 40


class SharedScript(Script):
    """Add queues in a tree, a namespace's elastic quota and a Koordinator tree to the random events."""

    def step(self) -> None:
        kind = self.draw.choice(
            [*KINDS, "queue", "queue", "elastic_quota", "koordinator_quota", "charged", "charged", "moved"]
        )
        getattr(self, f"_{kind}")()

    def _queue(self) -> None:
        draw = self.draw
        name = draw.choice(QUEUES[1:])
        self._tell(
            "queue",
            name,
            # Later names are children of earlier ones, or of one that does not exist (yet).
            parent=draw.choice(["", "", *[other for other in QUEUES[1:] if other < name], "missing"]),
            weight=draw.randint(1, 4),
            priority=draw.choice([0, 0, 1]),
            guarantee=draw.choice([{}, {}, {"gpu": 1}, {"cpu": 1, "gpu": 2}]),
            capability=draw.choice([{}, {}, {"gpu": 3}, {"cpu": 4}]),
            deserved=draw.choice([None, {"gpu": 2}, {"cpu": 2, "gpu": 1}]),
        )

    def _elastic_quota(self) -> None:
        draw = self.draw
        self._tell(
            "elastic_quota", draw.choice(["ns", "other"]), {"gpu": draw.randint(0, 6)}, {"gpu": draw.randint(0, 8)}
        )

    def _koordinator_quota(self) -> None:
        draw = self.draw
        for name in QUOTAS:
            self._tell(
                "account",
                AccountKey(Tree.KOORDINATOR, name),
                deserved={"gpu": draw.randint(0, 3)},
                capability={"gpu": draw.randint(3, 9)},
                lends=draw.random() < 0.7,
                parent=AccountKey(Tree.KOORDINATOR, "ka") if name != "ka" and draw.random() < 0.3 else None,
            )

    def _charged(self) -> None:
        draw = self.draw
        for _ in range(draw.randint(1, 4)):
            self._next += 1
            self._tell(
                "pod",
                f"p{self._next:03}",
                queue=draw.choice([*QUEUES, "missing"]),
                quota=draw.choice(["", *QUOTAS]),
                priority=draw.choice([0, 0, 5]),
                **draw.choice([{"cpu": 1}, {"cpu": 1, "gpu": 1}, {"gpu": 2}]),
            )

    def _moved(self) -> None:
        draw = self.draw
        self._tell("gang", draw.choice(GANGS), draw.randint(1, 3), queue=draw.choice([*QUEUES, "missing"]))


def decisions(world: Scenario) -> dict[str, str]:
    return {name: world.where(name) for name in world.placed()}


def excesses(world: Scenario) -> dict[tuple[AccountKey, str, str], int]:
    """Return the excess over its limit, by (account, word, resource)."""
    desk = Desk(world)
    found = {}
    for account in desk.session.ledger.accounts.values():
        for plugin in desk.session.plugin_runtime.plugins("limit"):
            ceiling = plugin.limit(desk.session, account)
            for name, limit in ceiling.limits.items() if ceiling is not None and not ceiling.lends else ():
                over = account.used.get(name, 0) - limit
                if over > 0 and ceiling is not None:
                    found[account.key, ceiling.word, name] = over
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(30)))
def test_no_decision_raises_an_account_above_its_limit(seed: int) -> None:
    world = Scenario(POLICIES[seed % 3])
    script = SharedScript(seed, world)
    try:
        for _ in range(STEPS):
            script.step()
            # A change of nodes can make pods placeable: from then on, the other queues deserve less.
            scheduler = world.scheduler
            scheduler.queue.activate(list(scheduler.features.wake(scheduler.begin(world.now))))
            before = excesses(world)
            world.work()
            after = excesses(world)
            assert all(over <= before.get(key, 0) for key, over in after.items())
    except AssertionError as error:
        error.add_note("\n".join(script.story))
        raise


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(30)))
def test_retrying_every_unit_places_no_more_pods(seed: int) -> None:
    lazy, eager = Scenario(POLICIES[seed % 3]), Scenario(POLICIES[seed % 3])
    script = SharedScript(seed, lazy, eager)
    try:
        for _ in range(STEPS):
            script.step()
            lazy.work()
            eager.scheduler.use(eager.policy)
            eager.work()
            assert decisions(lazy) == decisions(eager)
            assert lazy.admissions == eager.admissions
    except AssertionError as error:
        error.add_note("\n".join(script.story))
        raise


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(12)))
def test_every_waiting_pod_has_a_reason(seed: int) -> None:
    """At rest, every waiting single pod lacks a node, exceeds a limit or is held."""
    world = Scenario(POLICIES[seed % 3])
    script = SharedScript(seed, world)
    for _ in range(STEPS):
        script.step()
        world.work()
    session = Desk(world).session
    for uid, record in world.state.pods.standalone.items():
        if record.state is not MemberState.PENDING or record.pod.problem or record.charge_path is None:
            continue
        if session.placer.total_copies(record.pod_class):
            assert session.blocked(record) or session.quota_check.over_quota(
                record.charge_path, record.footprint
            ), uid
