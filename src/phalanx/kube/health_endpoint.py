"""HTTP endpoint of processes without one of their own: liveness, readiness with the role, and metrics."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from phalanx.kube.listening import listening

log = logging.getLogger(__name__)

LEADER, STANDBY = "leader", "standby"


@asynccontextmanager
async def health_endpoint(
    address: str, part: str, ready: Callable[[], bool], leads: Callable[[], bool]
) -> AsyncIterator[int]:
    """Serve /healthz, /livez, /readyz and /metrics of the process `part` on HOST:PORT inside the context; yield the
    port. Raises ListenError.

    A standby is ready: a rollout can replace the next replica. A leader is ready once it works.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    ready_gauge = Gauge("phalanx_process_ready", "1 if the process works.", ["part"], registry=registry)
    ready_gauge.labels(part).set_function(lambda: ready())
    leader_gauge = Gauge(
        "phalanx_process_leader", "1 if the process leads, 0 on a standby.", ["part"], registry=registry
    )
    leader_gauge.labels(part).set_function(lambda: leads())

    async def alive(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readiness(_: web.Request) -> web.Response:
        role = LEADER if leads() else STANDBY
        good = ready() or role == STANDBY
        return web.Response(text=f"{'ready' if good else 'not ready'}\nrole: {role}\n", status=200 if good else 503)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    routes = [
        web.get("/healthz", alive),
        web.get("/livez", alive),
        web.get("/readyz", readiness),
        web.get("/metrics", metrics),
    ]
    async with listening(address, routes) as port:
        log.info("health and metrics on %s", address)
        yield port
