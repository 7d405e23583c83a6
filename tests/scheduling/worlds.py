"""Random worlds for property tests: all kinds of events, drawn from a seed."""

from __future__ import annotations

import random

from phalanx.model.gang import MatchPolicy
from phalanx.model.pod import MemberState, PodClass, PodPhase
from phalanx.model.selectors import HostPort, Taint

from .scenario import PACKING, Scenario, amounts

GANGS = ["a", "b", "c", "d"]
STEPS = [
    "node",
    "node",
    "no node",
    "job",
    "job",
    "job",
    "pods",
    "pods",
    "finish",
    "gone",
    "gone",
    "gang",
    "confirm",
    "fail",
]
_POLICIES = [policy for policy in MatchPolicy if policy is not MatchPolicy.UNTIL_SCHEDULED]


class Script:
    """Random steps for several scenarios: each step is drawn once and replayed on all of them."""

    def __init__(self, seed: int, *worlds: Scenario) -> None:
        self.draw = random.Random(seed)
        self.worlds = worlds
        self.story: list[str] = []
        self._next = 0
        self._classes = [
            PodClass(),
            PodClass(node_selector=(("zone", "a"),)),
            PodClass(host_ports=(HostPort(80),)),
            PodClass(unsupported=("spec.odd",)),
        ]

    @classmethod
    def policy(cls, seed: int) -> str | None:
        return [None, PACKING][seed % 2]

    def step(self) -> None:
        getattr(self, "_" + self.draw.choice(STEPS).replace(" ", "_"))()

    def _tell(self, what: str, *args: object, **fields: object) -> None:
        self.story.append(f"{what} {args} {fields}")
        for world in self.worlds:
            getattr(world, what)(*args, **fields)

    def _node(self) -> None:
        draw = self.draw
        self._tell(
            "node",
            f"n{draw.randrange(4)}",
            cpu=draw.choice([2, 4]),
            gpu=draw.choice([0, 2, 4]),
            pods=draw.choice([3, 10]),
            labels=draw.choice([{}, {"zone": "a"}]),
            taints=draw.choice([[], [], [Taint("soft", effect="PreferNoSchedule")], [Taint("hard")]]),
            unschedulable=draw.random() < 0.1,
        )

    def _no_node(self) -> None:
        self._tell("no_node", f"n{self.draw.randrange(4)}")

    def _job(self) -> None:
        self._gang()
        self._pods()

    def _pods(self) -> None:
        draw = self.draw
        gang = draw.choice(["", *GANGS])
        for _ in range(draw.choice([1, 1, 2, 4])):
            self._next += 1
            self._tell(
                "pod",
                f"p{self._next:03}",
                gang=gang,
                role=draw.choice(["", "ps", "worker"]),
                pod_class=draw.choice(self._classes * 3 + self._classes[:2] * 6),
                priority=draw.choice([0, 0, 0, 5]),
                created=draw.randrange(5),
                problem=draw.choice([""] * 15 + ["odd"]),
                gated=draw.random() < 0.05,
                **draw.choice([{}, {"cpu": 1}, {"cpu": 1}, {"cpu": 1, "gpu": 1}, {"gpu": 2}, {"gpu": 4}]),
            )

    def _gang(self) -> None:
        draw = self.draw
        name = draw.choice(GANGS)
        least = draw.choice([(), (), (), (("ps", 1),), (("ps", 1), ("worker", 1))])
        admission = draw.random() < 0.25
        self._tell(
            "gang",
            name,
            max(draw.randint(1, 4), len(least)),
            roles=least,
            match_policy=_policy(name, draw.choice(_POLICIES)),
            gang_group=draw.choice([[]] * 6 + [["a", "b"], ["c", "d"]]) if name in "abcd" else [],
            priority=draw.choice([None, None, 0, 5]),
            created=draw.randrange(5),
            admission=admission,
            admitted=not admission or draw.random() < 0.3,
            min_resources=draw.choice([None, None, amounts(gpu=2), amounts(cpu=3, gpu=6)]),
        )

    def _pick(self, *states: MemberState) -> str | None:
        pods = [uid for uid, record in self.worlds[0].state.pods.items() if record.state in states]
        return self.draw.choice(pods) if pods else None

    def _finish(self) -> None:
        name = self._pick(MemberState.RUNNING, MemberState.BOUND)
        if name is not None:
            self._tell("finishes", name, phase=self.draw.choice([PodPhase.SUCCEEDED, PodPhase.FAILED]))

    def _gone(self) -> None:
        name = self._pick(*MemberState)
        if name is not None:
            self._tell("gone", name)

    def _confirm(self) -> None:
        name = self._pick(MemberState.ASSUMED)
        self._tell("confirm", *((name,) if name is not None and self.draw.random() < 0.5 else ()))

    def _fail(self) -> None:
        name = self._pick(MemberState.ASSUMED)
        if name is not None:
            self.story.append(f"binding of {name} fails")
            for world in self.worlds:
                world.state.pods.binding_failed(name)


def _policy(gang: str, drawn: MatchPolicy) -> MatchPolicy:
    """Half of the gangs that count running members do so only until they have been scheduled."""
    if drawn is MatchPolicy.WAITING_AND_RUNNING and gang in "bd":
        return MatchPolicy.UNTIL_SCHEDULED
    return drawn
