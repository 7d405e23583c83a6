"""Preparation before bindings: for all pods of a decision, or no pod is bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import cast

import msgspec

from phalanx.execution.binder import Binder, BindOutcome, BindResult, Guard, no_objection
from phalanx.execution.preparation import PreparationError, Preparations
from phalanx.model.decisions import Bind
from phalanx.model.preparations import Preparation


class Volume(Preparation, frozen=True):
    """`fate`: ok, bad (impossible), odd (a bug), never (no answer)."""

    name: str
    fate: str = "ok"


class Volumes:
    """Handler that records its calls."""

    def __init__(self) -> None:
        self.log: list[str] = []

    async def prepare(self, bind: Bind, preparation: Preparation) -> None:
        volume = cast(Volume, preparation)
        self.log.append(f"prepare {volume.name}")
        match volume.fate:
            case "bad":
                raise PreparationError(f"volume {volume.name} cannot be bound")
            case "odd":
                raise ValueError("surprise")
            case "never":
                await asyncio.Event().wait()

    async def awaited(self, preparation: Preparation) -> str:
        volume = cast(Volume, preparation)
        return "" if volume.name == "unknown" else f"claim {volume.name}"

    async def undo(self, bind: Bind, preparation: Preparation) -> None:
        volume = cast(Volume, preparation)
        self.log.append(f"undo {volume.name}")
        if volume.name == "stubborn":
            raise PreparationError("no")


class Recorder:
    """Binder that sends nothing and answers on request."""

    def __init__(self, report: Callable[[BindResult], None]) -> None:
        self.report = report
        self.posted: list[str] = []
        self.in_flight = 0

    def submit(self, binds: Iterable[Bind], guard: Guard = no_objection) -> None:
        self.posted += [bind.name for bind in binds]


class Desk:
    def __init__(self, timeout: float = 600.0, rounds: float = 600.0, patience: float = 600.0) -> None:
        self.volumes = Volumes()
        self.delays: list[tuple[str, str]] = []
        self.results: list[tuple[str, str, str]] = []
        self.preparations = Preparations(
            self._binder,
            self._report,
            {Volume: self.volumes},
            timeout=timeout,
            rounds=rounds,
            patience=patience,
            delayed=lambda bind, text: self.delays.append((bind.name, text)),
        )

    def _binder(self, report: Callable[[BindResult], None]) -> Binder:
        self.binder = Recorder(report)
        return cast(Binder, self.binder)

    def _report(self, result: BindResult) -> None:
        self.results.append((result.bind.name, result.outcome.name, result.message))

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def carry_out(self, *binds: Bind) -> None:
        self.preparations.submit(binds)
        await self.settle()

    def answer(self, bind: Bind, outcome: BindOutcome, message: str = "") -> None:
        self.binder.report(BindResult(bind, outcome, message))


def bind(name: str, *volumes: Volume, together: str = "") -> Bind:
    return Bind(f"uid-{name}", "ns", name, "node", preparations=volumes, together=together)


def gang(*fates: str) -> list[Bind]:
    return [bind(f"p{n}", Volume(f"v{n}", fate), together="c1") for n, fate in enumerate(fates)]


async def test_pod_without_preparation_is_bound_at_once() -> None:
    desk = Desk()
    desk.preparations.submit([bind("a"), bind("b", together="c1")])
    assert desk.binder.posted == ["a", "b"]


async def test_all_pods_are_prepared_before_any_is_bound() -> None:
    desk = Desk()
    members = [*gang("ok", "ok"), bind("plain", together="c1")]
    desk.preparations.submit(members)
    assert desk.binder.posted == []
    assert desk.preparations.in_flight == 1
    await desk.settle()
    assert desk.volumes.log == ["prepare v0", "prepare v1"]
    assert desk.binder.posted == ["p0", "p1", "plain"]
    for member in members:
        desk.answer(member, BindOutcome.BOUND)
    assert [entry[:2] for entry in desk.results] == [("p0", "BOUND"), ("p1", "BOUND"), ("plain", "BOUND")]


async def test_one_failed_preparation_rejects_exactly_its_decision() -> None:
    desk = Desk()
    await desk.carry_out(*gang("ok", "bad"), bind("other", Volume("w")))
    assert desk.binder.posted == ["other"]
    refused = "volume v1 cannot be bound"
    assert desk.results == [("p0", "REFUSED", refused), ("p1", "REFUSED", refused)]
    assert desk.volumes.log[-2:] == ["undo v0", "undo v1"]


async def test_preparation_for_a_deleted_node_is_no_longer_awaited() -> None:
    desk = Desk(rounds=0.001)
    objections = iter([None, None, "node n1 is gone"])
    members = gang("ok", "never")
    desk.preparations.submit(members, lambda bind: next(objections))
    async with asyncio.timeout(5):
        while not desk.results:  # noqa: ASYNC110 - it is the code under test that waits
            await asyncio.sleep(0.001)
    assert desk.binder.posted == []
    assert desk.results == [("p0", "REFUSED", "node n1 is gone"), ("p1", "REFUSED", "node n1 is gone")]
    assert desk.volumes.log[-2:] == ["undo v0", "undo v1"]


async def test_unexpected_error_is_a_rejection_that_names_it() -> None:
    desk = Desk()
    await desk.carry_out(*gang("odd"))
    assert desk.results == [("p0", "REFUSED", "ValueError: surprise")]


async def test_preparation_that_exceeds_its_time_is_rejected() -> None:
    desk = Desk(timeout=0.01)
    desk.preparations.submit(gang("ok", "never"))
    await asyncio.sleep(0.05)
    assert desk.binder.posted == []
    assert [entry[:2] for entry in desk.results] == [("p0", "REFUSED"), ("p1", "REFUSED")]
    assert "not ready within" in desk.results[0][2]


async def test_rejected_binding_undoes_its_preparations() -> None:
    desk = Desk()
    first, second = gang("ok", "ok")
    await desk.carry_out(first, second)
    desk.answer(first, BindOutcome.BOUND)
    desk.answer(second, BindOutcome.REFUSED, "403")
    await desk.settle()
    assert desk.volumes.log[2:] == ["undo v1"]
    assert desk.results == [("p0", "BOUND", ""), ("p1", "REFUSED", "403")]


async def test_failing_undo_blocks_no_other_undo() -> None:
    desk = Desk()
    members = [
        bind("p0", Volume("v0"), Volume("stubborn"), together="c"),
        bind("p1", Volume("v1", "bad"), together="c"),
    ]
    await desk.carry_out(*members)
    assert desk.volumes.log[-3:] == ["undo stubborn", "undo v0", "undo v1"]
    assert len(desk.results) == 2


async def test_stop_ends_a_preparation_like_a_crash() -> None:
    desk = Desk()
    await desk.carry_out(*gang("ok", "never"))
    desk.preparations.stop()
    await desk.settle()
    assert desk.binder.posted == []
    assert desk.results == []
    assert desk.preparations.in_flight == 0


def test_preparations_are_values() -> None:
    assert Volume("v") == msgspec.structs.replace(Volume("w"), name="v")


async def test_pods_of_a_decision_that_waits_for_long_learn_what_it_waits_for() -> None:
    desk = Desk(patience=0.001)
    desk.preparations.submit([*gang("ok", "never", "never"), bind("plain", together="c1")])
    async with asyncio.timeout(5):
        while len(desk.delays) < 4:  # noqa: ASYNC110 - it is the code under test that waits
            await asyncio.sleep(0.001)
    text = "waits for claim v1 (and 1 more claim of its gang)"
    assert desk.delays == [(name, text) for name in ("p0", "p1", "p2", "plain")]


async def test_decision_without_delay_or_known_cause_reports_nothing() -> None:
    desk = Desk(patience=0.001)
    desk.preparations.submit([*gang("ok"), bind("odd", Volume("unknown", "never"))])
    await asyncio.sleep(0.05)
    assert desk.delays == []
    assert desk.binder.posted == ["p0"]
