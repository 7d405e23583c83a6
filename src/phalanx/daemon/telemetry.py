"""Health and metrics: what an operator's probes and Prometheus ask."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter as Tally
from typing import Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from phalanx.execution.binder import BindOutcome, BindResult
from phalanx.execution.conditions import NominationOutcome
from phalanx.execution.evictor import EvictionOutcome, EvictResult
from phalanx.model.decisions import EvictionReason, Plan

log = logging.getLogger(__name__)


class TelemetryError(Exception):
    """The address for health and metrics cannot be used."""


class Observed(Protocol):
    """What the probes look at."""

    def condition(self) -> str:
        """One word for a process that does its duty (a standby waits for its turn, and that is it), "" before."""
        ...

    def pending(self) -> tuple[int, int]:
        """(gangs, pods) that wait."""
        ...


class Telemetry:
    """Metric names follow kube-scheduler's where it has the same thing. `address` is host:port, "" for none.

    Liveness does not depend on the API server: a scheduler that waits for it must not be restarted for that.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self.registry = CollectorRegistry()
        attempts = Counter(
            "scheduler_schedule_attempts",
            "Pods and gangs decided on, by result",
            ["result"],
            registry=self.registry,
        )
        self._scheduled = attempts.labels("scheduled")
        self._unschedulable = attempts.labels("unschedulable")
        self._cycles = Histogram(
            "phalanx_cycle_duration_seconds",
            "One planning cycle",
            buckets=[0.001 * 2**step for step in range(14)],
            registry=self.registry,
        )
        binds = Counter("phalanx_bindings", "Bindings by outcome", ["outcome"], registry=self.registry)
        self._binds = {outcome: binds.labels(outcome.value) for outcome in BindOutcome}
        evictions = Counter(
            "phalanx_evictions", "Evictions by reason and outcome", ["reason", "outcome"], registry=self.registry
        )
        self._evictions = {
            (reason, outcome): evictions.labels(reason.value, outcome.value)
            for reason in EvictionReason
            for outcome in EvictionOutcome
        }
        nominations = Counter(
            "phalanx_nominations", "Promises of room by outcome", ["outcome"], registry=self.registry
        )
        self._nominations = {outcome: nominations.labels(outcome.value) for outcome in NominationOutcome}
        disruptions = Counter(
            "phalanx_disruptions", "Decisions to evict by reason", ["reason"], registry=self.registry
        )
        self._disruptions = {reason: disruptions.labels(reason.value) for reason in EvictionReason}
        self._victims = Histogram(
            "scheduler_preemption_victims",
            "Pods that one decision evicts",
            buckets=[2**step for step in range(13)],
            registry=self.registry,
        )
        self._refusals = Counter(
            "phalanx_kubelet_refusals", "Pods that were bound and not admitted", ["reason"], registry=self.registry
        )
        self._distrusted = Counter(
            "phalanx_distrusted_annotations",
            "Pods with an annotation of ours that we have not made for them, and ignore",
            ["key"],
            registry=self.registry,
        )
        self._failures = Counter(
            "phalanx_failures", "What raised and was passed over, by part", ["part"], registry=self.registry
        )
        self._statuses_refused = Counter(
            "phalanx_status_writes_refused",
            "Statuses that the API server did not want, by kind",
            ["kind"],
            registry=self.registry,
        )
        self._pending = Gauge("scheduler_pending_pods", "Pods that wait", ["queue"], registry=self.registry)

    def cycle(self, plan: Plan, seconds: float) -> None:
        self._cycles.observe(seconds)
        self._scheduled.inc(len(plan.binds))
        held = sum(entry.verdict is not None for entry in plan.gangs)
        self._unschedulable.inc(held + sum(entry.verdict is not None for entry in plan.pods))

        for (_, reason), victims in Tally((evict.cause, evict.reason) for evict in plan.evictions).items():
            self._disruptions[reason].inc()
            self._victims.observe(victims)

    def bound(self, result: BindResult) -> None:
        self._binds[result.outcome].inc()

    def evicted(self, result: EvictResult) -> None:
        self._evictions[result.evict.reason, result.outcome].inc()

    def distrusted(self, key: str) -> None:
        self._distrusted.labels(key).inc()

    def failed(self, part: str) -> None:
        """`part` is one of a few words."""
        self._failures.labels(part).inc()

    def status_refused(self, kind: str) -> None:
        self._statuses_refused.labels(kind).inc()

    def refused_by_kubelet(self, reason: str) -> None:
        self._refusals.labels(reason).inc()

    def nominated(self, outcome: NominationOutcome) -> None:
        self._nominations[outcome].inc()

    async def serve(self, observed: Observed) -> None:
        """Until cancelled. Raises TelemetryError where the address cannot be used."""
        if not self._address:
            return
        host, _, port = self._address.rpartition(":")
        if not port.isdecimal():
            raise TelemetryError(f"--metrics-address {self._address!r} is not HOST:PORT")

        async def alive(_: web.Request) -> web.Response:
            return web.Response(text="ok\n")

        async def ready(_: web.Request) -> web.Response:
            word = observed.condition()
            return web.Response(text=f"{word or 'not synced'}\n", status=200 if word else 503)

        async def metrics(_: web.Request) -> web.Response:
            gangs, pods = observed.pending()
            self._pending.labels("gangs").set(gangs)
            self._pending.labels("pods").set(pods)
            return web.Response(body=generate_latest(self.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", alive),
                web.get("/livez", alive),
                web.get("/readyz", ready),
                web.get("/metrics", metrics),
            ]
        )
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, host.strip("[]") or "127.0.0.1", int(port)).start()
            except (OSError, OverflowError) as error:
                raise TelemetryError(f"cannot serve metrics on {self._address}: {error}") from error
            log.info("health and metrics on %s", self._address)
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()
