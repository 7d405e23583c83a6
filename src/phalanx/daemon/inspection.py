"""Inspection of a running scheduler: probes, Prometheus metrics, and debug pages for authorized users."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from phalanx.cluster.account_copies import AccountCopies
from phalanx.cluster.state import ClusterState
from phalanx.daemon.gang_list import GangList
from phalanx.daemon.metrics.accounts import AccountSeries, AccountSnapshot
from phalanx.daemon.metrics.api_requests import ApiRequests
from phalanx.daemon.metrics.cluster_counts import CountedCluster
from phalanx.daemon.metrics.debugging import compared_with_api, pod_story, state_dump
from phalanx.daemon.metrics.defragmentation import DefragmentationMetrics
from phalanx.daemon.metrics.deserved import DeservedShares, Share, nothing
from phalanx.daemon.metrics.exposition import labels, lines_of
from phalanx.daemon.metrics.fragmentation import FragmentationMetrics
from phalanx.daemon.metrics.starts import StartMetrics
from phalanx.daemon.metrics.watches import WatchSeries
from phalanx.daemon.telemetry import Telemetry
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.events import EventRecorder
from phalanx.kube.failures import Failures
from phalanx.kube.path_access import AccessError, PathAccess
from phalanx.kube.reflector import Reflector
from phalanx.model.gang import GangKey
from phalanx.model.text.decoding import quoted
from phalanx.model.verdict import Verdict
from phalanx.scheduling.scheduler import Scheduler
from phalanx.scheduling.start_reservations.plugin import reservation_plan
from phalanx.views.promises import promises_of_scheduler

if TYPE_CHECKING:
    from aiohttp import web

#: Names of kube-scheduler where it has them.
_CALL_TYPES = {
    Urgency.BIND: "pod_binding",
    Urgency.RECORD: "record",
    Urgency.NOMINATE: "pod_status_patch",
    Urgency.DELETE: "pod_deletion",
    Urgency.STATUS: "status_patch",
    Urgency.EVENT: "event",
}

_STANDBY = "this replica is a standby; use the leader: the lease's holderIdentity begins with its pod name"


class Inspection:
    """Responses of the HTTP endpoint about a running scheduler.

    `condition` returns the readiness in one word, `checks` the named checks beside it, `settings` the options and
    the policy's text.

    `/configz`, `/debug/state[?compare]` and `/debug/story?pod=NAMESPACE/NAME` need the right to `get` that path of
    the API server (a ClusterRole with nonResourceURLs). `/v1/gangs[?namespace=NAMESPACE]` needs the right to list
    the pods there.
    """

    def __init__(
        self,
        client: KubeClient,
        state: ClusterState,
        scheduler: Callable[[], Scheduler],
        verdict_of: Callable[[GangKey], Verdict | None],
        condition: Callable[[], str],
        checks: Callable[[], dict[str, bool]],
        settings: Callable[[], tuple[msgspec.Struct, str]],
        telemetry: Telemetry,
        reflectors: Callable[[], Iterable[Reflector[Any]]],
        pool: WritePool,
        recorder: EventRecorder,
        failures: Failures,
    ) -> None:
        self._client = client
        self._state = state
        self._scheduler = scheduler
        self._telemetry = telemetry
        self._counted = CountedCluster(state, scheduler, verdict_of)
        self._fragmentation = FragmentationMetrics(state)
        self._deserved = DeservedShares(scheduler)
        self._accounts = AccountSeries(state, telemetry.endpoint.accounts, self._deserved_by)
        self._gangs = GangList(state, lambda: promises_of_scheduler(scheduler()), verdict_of)
        self._writing = asyncio.Lock()
        self._watches = WatchSeries(reflectors)
        self._pool = pool
        self._recorder = recorder
        self._failures = failures
        # A standby sends access reviews as well, although they are POST requests.
        self._access = PathAccess(client.fenced(lambda: True))
        self._settings = settings
        self._checks = checks
        self.condition = condition
        registry = telemetry.registry
        self._requests = ApiRequests(registry, client.config.server)
        client.answered = self._requests.answered
        registry.register(StartMetrics(lambda: reservation_plan(scheduler().features) if self._leads() else None))
        registry.register(DefragmentationMetrics(lambda: scheduler() if self._leads() else None, time.time))

    def verdict_published(self, key: GangKey) -> None:
        """Count a gang again after its published verdict has changed."""
        self._counted.touch(key)

    def checks(self) -> Mapping[str, bool]:
        return self._checks()

    def counted(self) -> Iterator[str]:
        checks, options = self._checks(), self._settings()[0]
        lease = labels(name=str(getattr(options, "lease_name", "")))
        yield from lines_of("leader_election_master_status", [(lease, int(checks["leader"]))])
        role = labels(replica_role="leader" if checks["leader"] else "standby")
        yield from lines_of("phalanx_replica_role", [(role, 1)])
        yield from lines_of("phalanx_ready", ((labels(check=name), int(good)) for name, good in checks.items()))
        yield from self._counted.lines(time.time(), checks["leader"])
        yield from self._fragmentation.lines()
        yield from self._watches.lines()
        yield from self._requests.lines()
        waiting = self._pool.waiting().items()
        calls = ((labels(call_type=_CALL_TYPES[urgency]), count) for urgency, count in waiting)
        yield from lines_of("scheduler_pending_async_api_calls", calls)
        yield from lines_of("phalanx_api_write_concurrency", [("", self._pool.window)])
        yield from lines_of("phalanx_events_dropped_total", [("", self._recorder.dropped)])

    def _leads(self) -> bool:
        return self._checks()["leader"]

    def _deserved_by(self, copies: AccountCopies) -> Share | None:
        """Return the deserved shares that the policy computes for queues, as a function.

        A standby has no usage history of the queues, so it publishes none.
        """
        checks = self._checks()
        if not checks["leader"] or not checks["synced"]:
            return nothing if self._scheduler().plugin_runtime.plugins("deserved") else None
        try:
            return self._deserved.as_of(copies)
        except Exception as error:
            self._failures.record_failure("plugin", "deserved shares", error)
            return nothing

    async def counted_apart(self) -> str:
        """Return the metrics of queues and quotas, computed by a thread while planning continues.

        Only the copy of the account figures is made in the event loop.
        """
        async with self._writing:
            snapshot = self._accounts.snapshot()
            try:
                return await asyncio.to_thread(_text, self._accounts, snapshot)
            except Exception as error:
                self._failures.record_failure("plugin", "deserved shares", error)
            snapshot = msgspec.structs.replace(snapshot, deserved=nothing)
            return await asyncio.to_thread(_text, self._accounts, snapshot)

    async def refusal(self, request: web.Request) -> web.Response | None:
        from aiohttp import web

        try:
            await self._access.check(request.headers.get("Authorization", ""), request.path)
        except AccessError as error:
            return web.json_response({"error": str(error)}, status=error.status)
        return None

    async def inspect(self, request: web.Request) -> web.Response:
        from aiohttp import web

        refusal = await self.refusal(request)
        if refusal is not None:
            return refusal
        try:
            if request.path == "/debug/story":
                return self._story(request)
            answer = await self._answer(request)
        except (ApiError, ConnectionLost) as error:
            return web.json_response({"error": f"the API server: {error}"}, status=503)
        if answer is None:
            return web.json_response({"error": f"unknown path {request.path_qs}"}, status=404)
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    async def gangs(self, request: web.Request) -> web.Response:
        """Return the gangs of a namespace (`?namespace=`) or of all, and of a queue (`?queue=`) or of all."""
        from aiohttp import web

        namespace, queue = (request.query.get(name, "") for name in ("namespace", "queue"))
        try:
            await self._access.check_pods(request.headers.get("Authorization", ""), namespace)
        except AccessError as error:
            return web.json_response({"error": str(error)}, status=error.status)
        checks = self._checks()
        if not checks["synced"] or not checks["leader"]:
            problem = "this replica has not listed all objects of the cluster yet" if checks["leader"] else _STANDBY
            return web.json_response({"error": problem}, status=503)
        return web.Response(body=await self._gangs.answer(namespace, queue), content_type="application/json")

    async def _answer(self, request: web.Request) -> dict[str, Any] | None:
        match request.path:
            case "/configz":
                options, policy = self._settings()
                return {"options": msgspec.to_builtins(options), "policy": policy, "checks": self._checks()}
            case "/debug/state" if "compare" in request.query:
                return await compared_with_api(self._client, self._state)
            case "/debug/state":
                dump = state_dump(self._state, self._scheduler())
                self._telemetry.self_check_failed(len(dump["selfCheck"]))
                return dump
        return None

    def _story(self, request: web.Request) -> web.Response:
        from aiohttp import web

        pod = request.query.get("pod", "")
        namespace, _, name = pod.partition("/")
        if not namespace or not name or "/" in name:
            error = f"{quoted(pod)} is not NAMESPACE/NAME" if pod else "the parameter pod is missing"
            return web.json_response({"error": f"{error}: use /debug/story?pod=NAMESPACE/NAME"}, status=400)
        story = pod_story(self._state, self._telemetry.decisions, namespace, name)
        if story is None:
            return web.json_response({"error": f"unknown pod {pod}"}, status=404)
        return web.Response(body=msgspec.json.encode(story), content_type="application/json")


def _text(series: AccountSeries, snapshot: AccountSnapshot) -> str:
    return "\n".join([*series.lines(snapshot), ""])
