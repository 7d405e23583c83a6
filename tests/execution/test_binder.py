"""Bindings: what is made of every answer (docs/rules/kubernetes_native.md, B3 and B4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from phalanx.dialects.gangs.plan_marks import encode_mark
from phalanx.dialects.signatures import Signer
from phalanx.execution.binder import Binder, BindOutcome, BindResult
from phalanx.execution.writes import WritePool
from phalanx.kube.errors import ConfigError, ConnectionLost, Unreachable
from phalanx.kube.http.transport import HttpRequest
from phalanx.kube.retry import Backoff
from phalanx.model.decisions import Bind
from phalanx.model.gang import GangKey
from phalanx.model.pod import PlanMark
from tests.execution.podserver import PodServer

MARK = PlanMark("c1-1000", 4, 1000)
BIND = Bind("uid-p", "ns", "p", "n1", GangKey("ns", "g"), MARK)
SIGNER = Signer((("1", b"k" * 32),))


class World:
    """A server with one pod p, and a binder on it."""

    def __init__(self) -> None:
        self.server = PodServer()
        self.results: list[BindResult] = []
        self.pauses: list[float] = []
        self.pool = WritePool(concurrency=4)
        self.binder = Binder(
            self.server.client(), self.pool, self.results.append, SIGNER, attempts=4, backoff=self._backoff
        )
        self.pod = self.server.add("p")

    def _backoff(self) -> Backoff:
        world = self

        class Noted(Backoff):
            def next(self, retry_after: float | None = None) -> float:
                world.pauses.append(super().next(retry_after))
                return 0.0

        return Noted(base=0.1, cap=5.0, random=lambda: 1.0)

    async def bind(self, bind: Bind = BIND, **more: Any) -> BindResult:
        self.binder.submit([bind], **more)
        async with asyncio.timeout(5):
            await self.pool.drained()
        assert self.binder.in_flight == 0
        assert len(self.results) == 1, "each binding is reported once"
        return self.results[0]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.pool.close()


async def test_created_is_bound(world: World) -> None:
    sent: list[dict[str, Any]] = []
    world.server.before = lambda call: sent.append(msgspec.json.decode(call.body or b"{}"))
    assert (await world.bind()).outcome is BindOutcome.BOUND
    assert world.server.calls == ["POST p/binding"]
    assert sent == [
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": "p",
                "namespace": "ns",
                "uid": "uid-p",
                "annotations": {"phalanx.dev/gang-plan": encode_mark(MARK, SIGNER, "uid-p", GangKey("ns", "g"))},
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
        }
    ]


async def test_a_pod_on_its_own_carries_no_mark(world: World) -> None:
    await world.bind(Bind("uid-p", "ns", "p", "n1"))
    assert "phalanx.dev/gang-plan" not in world.pod["metadata"].get("annotations", {})


async def test_a_conflict_with_our_own_lost_try_is_bound(world: World) -> None:
    world.pod["spec"]["nodeName"] = "n1"
    assert (await world.bind()).outcome is BindOutcome.BOUND
    assert world.server.calls == ["POST p/binding", "GET p"]


def on_another_node(pod: dict[str, Any]) -> None:
    pod["spec"]["nodeName"] = "n2"


def replaced(pod: dict[str, Any]) -> None:
    pod["metadata"]["uid"] = "uid-of-its-successor"


def terminating(pod: dict[str, Any]) -> None:
    pod["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"


def gated(pod: dict[str, Any]) -> None:
    pod["spec"]["schedulingGates"] = [{"name": "example.com/hold"}]


@pytest.mark.parametrize(
    ("state", "outcome", "words"),
    [
        (on_another_node, BindOutcome.MOVED, "bound to node n2"),
        (replaced, BindOutcome.MOVED, "replaced"),
        (terminating, BindOutcome.MOVED, "being deleted"),
        (gated, BindOutcome.REFUSED, "schedulingGates"),
    ],
)
async def test_a_conflict_is_looked_into(
    world: World, state: Callable[[dict[str, Any]], None], outcome: BindOutcome, words: str
) -> None:
    state(world.pod)
    result = await world.bind()
    assert result.outcome is outcome
    assert words in result.message
    assert world.server.calls == ["POST p/binding", "GET p"]


async def test_a_conflict_that_passes_is_tried_again(world: World) -> None:
    world.server.fail("POST", "/binding", status=409, times=2)
    assert (await world.bind()).outcome is BindOutcome.BOUND
    assert world.server.node_of("p") == "n1"


async def test_conflicts_without_end_are_a_refusal(world: World) -> None:
    world.server.fail("POST", "/binding", status=409, times=100)
    assert (await world.bind()).outcome is BindOutcome.REFUSED
    assert world.server.calls.count("POST p/binding") == 4


async def test_a_pod_that_is_gone_has_moved(world: World) -> None:
    world.server.pods.clear()
    assert (await world.bind()).outcome is BindOutcome.MOVED


async def test_not_found_from_a_proxy_says_nothing_about_the_pod(world: World) -> None:
    world.server.fail("POST", "/binding", status=404, body=b"<html>no backend</html>")
    assert (await world.bind()).outcome is BindOutcome.BOUND


@pytest.mark.parametrize("code", [400, 401, 403, 413, 422])
async def test_a_definite_no_is_not_repeated(world: World, code: int) -> None:
    world.server.fail("POST", "/binding", status=code, times=100)
    result = await world.bind()
    assert result.outcome is BindOutcome.REFUSED
    assert str(code) in result.message
    assert world.server.calls == ["POST p/binding"]


async def test_too_many_requests_waits_as_long_as_asked(world: World) -> None:
    world.server.fail("POST", "/binding", status=429, retry_after="7")
    assert (await world.bind()).outcome is BindOutcome.BOUND
    assert world.server.calls == ["POST p/binding", "POST p/binding"]
    assert world.pauses[0] >= 7


async def test_too_many_requests_without_end_is_a_refusal(world: World) -> None:
    world.server.fail("POST", "/binding", status=429, times=100)
    assert (await world.bind()).outcome is BindOutcome.REFUSED
    assert world.server.calls == ["POST p/binding"] * 4


@pytest.mark.parametrize("code", [500, 502, 503, 504])
@pytest.mark.parametrize("after_write", [False, True])
async def test_a_server_error_leaves_open_what_happened(world: World, code: int, after_write: bool) -> None:
    world.server.fail("POST", "/binding", status=code, after_write=after_write)
    assert (await world.bind()).outcome is BindOutcome.BOUND
    posts = world.server.calls.count("POST p/binding")
    assert posts == (1 if after_write else 2)
    assert world.server.calls[:2] == ["POST p/binding", "GET p"]


@pytest.mark.parametrize("after_write", [False, True])
async def test_a_lost_connection_leaves_open_what_happened(world: World, after_write: bool) -> None:
    world.server.fail("POST", "/binding", error=ConnectionLost("cut"), after_write=after_write)
    assert (await world.bind()).outcome is BindOutcome.BOUND
    assert world.server.calls.count("POST p/binding") == (1 if after_write else 2)
    assert world.server.calls[1] == "GET p"


async def test_an_open_question_is_asked_until_it_is_answered(world: World) -> None:
    """As long as nobody knows whether the pod is bound, nothing else may be decided about it."""
    world.server.fail("POST", "/binding", error=ConnectionLost("cut"), after_write=True)
    world.server.fail("GET", "/p", error=Unreachable("down"), times=20)
    world.server.fail("GET", "/p", status=503, times=20)
    assert (await world.bind()).outcome is BindOutcome.BOUND
    assert world.server.calls.count("POST p/binding") == 1
    assert world.server.calls.count("GET p") == 41


async def test_a_server_that_cannot_be_reached_is_waited_for(world: World) -> None:
    world.server.fail("POST", "/binding", error=Unreachable("connection refused"), times=30)
    assert (await world.bind()).outcome is BindOutcome.BOUND
    assert "GET p" not in world.server.calls


async def test_credentials_that_cannot_be_renewed_are_waited_for(world: World) -> None:
    world.server.fail("POST", "/binding", error=ConfigError("the plugin fails"), times=3)
    assert (await world.bind()).outcome is BindOutcome.BOUND


async def test_the_guard_is_asked_before_each_try(world: World) -> None:
    world.server.fail("POST", "/binding", status=503)
    objections = iter([None, "node n1 is gone"])
    result = await world.bind(guard=lambda bind: next(objections))
    assert result.outcome is BindOutcome.REFUSED
    assert result.message == "node n1 is gone"
    assert world.server.calls == ["POST p/binding", "GET p"]
    assert world.server.node_of("p") == ""


async def test_the_guard_has_no_say_while_the_last_try_is_open(world: World) -> None:
    """A node that goes while the answer is missing does not make the binding undone."""
    world.server.fail("POST", "/binding", error=ConnectionLost("cut"), after_write=True)
    world.server.fail("GET", "/p", error=ConnectionLost("cut"), times=2)
    objections = iter([None, "node n1 is gone"])
    assert (await world.bind(guard=lambda bind: next(objections))).outcome is BindOutcome.BOUND


async def test_a_bug_is_a_refusal_and_not_a_hang(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def broken(bind: Bind) -> str | None:
        raise ZeroDivisionError("a bug")

    result = await world.bind(guard=broken)
    assert result.outcome is BindOutcome.REFUSED
    assert "a bug" in result.message
    assert "failed unexpectedly" in caplog.text


async def test_bindings_that_fail_do_not_hold_up_those_that_would_succeed(world: World) -> None:
    """Four places, four pods behind a webhook that is down: the fifth is bound all the same, in its first try."""
    pods = [world.server.add(f"bad-{number}") for number in range(4)]
    world.server.add("good")
    order: list[str] = []

    def note(call: HttpRequest) -> None:
        if call.method == "POST":
            order.append(call.target.split("/")[-2])

    world.server.before = note
    for number in range(4):
        world.server.fail("POST", f"/bad-{number}/binding", status=500, times=2)
    names = [pod["metadata"]["name"] for pod in pods] + ["good"]
    world.binder.submit([Bind(f"uid-{name}", "ns", name, "n1") for name in names])
    async with asyncio.timeout(5):
        await world.pool.drained()
    assert order.index("good") == 4
    assert all(result.outcome is BindOutcome.BOUND for result in world.results)
