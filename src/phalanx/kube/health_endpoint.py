"""HTTP endpoint of processes without one of their own: liveness, readiness with the role, and metrics."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from phalanx.model.text.decoding import quoted

log = logging.getLogger(__name__)

LEADER, STANDBY = "leader", "standby"


class HealthAddressError(Exception):
    """Error for an address on which the endpoint cannot listen."""


@asynccontextmanager
async def health_endpoint(
    address: str, part: str, ready: Callable[[], bool], leads: Callable[[], bool]
) -> AsyncIterator[int]:
    """Serve /healthz, /livez, /readyz and /metrics of the process `part` on HOST:PORT inside the context; yield the
    port. Raises HealthAddressError.

    A standby is ready: a rollout can replace the next replica. A leader is ready once it works.
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise HealthAddressError(f"--metrics-address {quoted(address)} is not HOST:PORT")
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

    application = web.Application()
    application.add_routes(
        [
            web.get("/healthz", alive),
            web.get("/livez", alive),
            web.get("/readyz", readiness),
            web.get("/metrics", metrics),
        ]
    )
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host.strip("[]") or "127.0.0.1", int(port)).start()
        except (OSError, OverflowError, ValueError) as error:
            raise HealthAddressError(f"cannot serve health and metrics on {address}: {error}") from error
        log.info("health and metrics on %s", address)
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
