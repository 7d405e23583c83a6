"""Pods that a step of a JobFlow may probe, and answers that count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from phalanx.controllers.flows import probes
from phalanx.controllers.flows.probes import PodProbes, answers
from phalanx.jobs.flow import ProbeQuestion
from tests.controllers.api import Json, MemoryApi
from tests.controllers.jobs import PODS


def question(port: int = 80, path: str | None = None, header: tuple[str, str] | None = None) -> ProbeQuestion:
    return ProbeQuestion("f-a", "u", "w", 2, port, path, header)


def pod(name: str, address: str, *, uid: str = "u", task: str = "w", phase: str = "Running", **spec: Any) -> Json:
    owner = {"kind": "Job", "name": "f-a", "uid": uid, "controller": True}
    labels = {"volcano.sh/job-name": "f-a", "volcano.sh/task-spec": task}
    return {
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
        "spec": spec,
        "status": {"phase": phase, "podIP": address, "hostIP": "10.9.9.9"},
    }


async def asked(*pods: Json, port: int = 80) -> tuple[bool, list[str]]:
    """Return the result of a probe, and the addresses that were called."""
    api, addresses = MemoryApi(), []
    for each in pods:
        api.apply(PODS, each)

    async def ask(address: str, question: ProbeQuestion) -> bool:
        addresses.append(address)
        return address != "10.0.0.3"

    holds = await PodProbes(api, ask).holds("default", question(port))  # type: ignore[arg-type]
    return holds, addresses


async def test_all_pods_of_the_task_must_answer() -> None:
    first = pod("a", "10.0.0.1")
    assert await asked(first, pod("b", "10.0.0.2")) == (True, ["10.0.0.1", "10.0.0.2"])
    assert await asked(first, pod("b", "10.0.0.3")) == (False, ["10.0.0.1", "10.0.0.3"])


@pytest.mark.parametrize(
    "second",
    [
        pod("b", "10.0.0.2", uid="of another job"),
        pod("b", "10.0.0.2", task="of another task"),
        pod("b", "10.0.0.2", phase="Succeeded"),
        pod("b", "10.9.9.9"),
        pod("b", "10.0.0.2", hostNetwork=True),
        pod("b", "127.0.0.1"),
        pod("b", "::ffff:127.0.0.1"),
        pod("b", "169.254.169.254"),
        pod("b", "metadata.internal"),
        pod("b", ""),
    ],
)
async def test_nothing_else_is_asked(second: Json) -> None:
    assert await asked(pod("a", "10.0.0.1"), second) == (False, [])


async def test_a_port_that_there_is_not_never_answers() -> None:
    pods = (pod("a", "10.0.0.1"), pod("b", "10.0.0.2"))
    assert await asked(*pods, port=0) == (False, [])


class Server:
    """A server that answers requests with the key, and redirects some."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.port = 0

    async def serve(self, request: web.Request) -> web.Response:
        self.paths.append(request.path)
        if request.path == "/moved":
            raise web.HTTPFound("/elsewhere")
        if request.path == "/slow":
            await asyncio.sleep(60)
        return web.Response(status=200 if request.headers.get("X-Key") == "k" else 503)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    app, found = web.Application(), Server()
    app.router.add_get("/{path:.*}", found.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.port = runner.addresses[0][1]
    yield found
    await runner.cleanup()


@pytest.mark.parametrize(
    ("path", "header", "holds"),
    [
        (None, None, True),
        ("/ready?deep=1", ("X-Key", "k"), True),
        ("ready", ("X-Key", "k"), True),
        ("/ready", None, False),
        ("/moved", None, True),
        ("/slow", ("X-Key", "k"), False),
        ("/ready", ("X-Key", "k\r\nX-More: 1"), False),
        ("/ready", ("X Key:", "k"), False),
        ("//other.host/ready", ("X-Key", "k"), True),
    ],
)
async def test_which_answers_count(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    path: str | None,
    header: tuple[str, str] | None,
    holds: bool,
) -> None:
    monkeypatch.setattr(probes, "_SECONDS", 0.05 if path == "/slow" else 60.0)
    assert await answers("127.0.0.1", question(server.port, path, header)) is holds
    assert "/elsewhere" not in server.paths


async def test_probe_without_a_listener_fails() -> None:
    assert not await answers("127.0.0.1", question(1))
    assert not await answers("127.0.0.1", question(1, "/"))
