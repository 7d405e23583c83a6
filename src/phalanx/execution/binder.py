"""Bindings: posted at most once in effect, whatever happens on the way."""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from phalanx.dialects.marks import PLAN_ANNOTATION, encode_mark
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.paths import Resource
from phalanx.kube.retry import Backoff
from phalanx.model.decisions import Bind

log = logging.getLogger(__name__)

PODS = Resource("", "v1", "pods", "Pod")


class Outcome(enum.Enum):
    """What became of a binding."""

    BOUND = "bound"
    MOVED = "moved"  # deleted, terminating or bound elsewhere: the watch tells the rest
    REFUSED = "refused"  # a definite no; the pod is still pending


class BindResult(msgspec.Struct, frozen=True):
    bind: Bind
    outcome: Outcome
    message: str = ""


class _Target(msgspec.Struct, rename="camel"):
    name: str
    api_version: str = "v1"
    kind: str = "Node"


class _Metadata(msgspec.Struct, omit_defaults=True):
    name: str
    namespace: str
    uid: str
    annotations: dict[str, str] = {}


class _Binding(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    target: _Target
    api_version: str = "v1"
    kind: str = "Binding"


class Binder:
    """Posts bindings with the pod's uid through a pool and reports each outcome exactly once.

    The binding endpoint answers 409 to everything from a wrong uid to a pod that is bound already, also by our
    own lost first try; and a lost connection or a 5xx leaves open whether the write happened. In all these cases
    the pod is read and compared before anything else is tried (research/kubernetes_native.md, B3). `guard` gives
    a reason not to post any more (its node is gone, leadership is lost), asked right before each try.
    """

    def __init__(
        self,
        client: KubeClient,
        pool: WritePool,
        report: Callable[[BindResult], None],
        *,
        guard: Callable[[Bind], str | None] = lambda bind: None,
        attempts: int = 6,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._pool = pool
        self._report = report
        self._guard = guard
        self._attempts = attempts
        self._sleep = sleep
        self._encoder = msgspec.json.Encoder()
        self.in_flight = 0

    def submit(self, binds: Iterable[Bind]) -> None:
        for bind in binds:
            self.in_flight += 1
            self._pool.submit(Urgency.BIND, lambda bind=bind: self._run(bind))  # type: ignore[misc]

    async def _run(self, bind: Bind) -> None:
        try:
            result = await self._bind(bind)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.exception("binding %s/%s failed unexpectedly", bind.namespace, bind.name)
            result = BindResult(bind, Outcome.REFUSED, f"{type(error).__name__}: {error}")
        finally:
            self.in_flight -= 1
        self._report(result)

    async def _bind(self, bind: Bind) -> BindResult:
        path = PODS.path(bind.namespace, bind.name, "binding")
        annotations = {PLAN_ANNOTATION: encode_mark(bind.mark)} if bind.mark is not None else {}
        body = self._encoder.encode(
            _Binding(_Metadata(bind.name, bind.namespace, bind.uid, annotations), _Target(bind.node))
        )
        backoff = Backoff(base=0.1, cap=10.0)
        message = ""
        for _ in range(self._attempts):
            reason = self._guard(bind)
            if reason is not None:
                return BindResult(bind, Outcome.REFUSED, reason)
            retry_after: float | None = None
            try:
                await self._client.request("POST", path, body=body)
                return BindResult(bind, Outcome.BOUND)
            except ApiError as error:
                message, retry_after = str(error), error.retry_after
                if error.status == 404:
                    return BindResult(bind, Outcome.MOVED, message)
                if error.status in (409, 429) or error.status >= 500:
                    if error.status != 429:
                        settled = await self._look(bind, message)
                        if settled is not None:
                            return settled
                else:
                    return BindResult(bind, Outcome.REFUSED, message)
            except ConnectionLost as error:
                message = str(error)
                settled = await self._look(bind, message)
                if settled is not None:
                    return settled
            await self._sleep(backoff.next(retry_after))
        return await self._look(bind, message) or BindResult(bind, Outcome.REFUSED, message)

    async def _look(self, bind: Bind, message: str) -> BindResult | None:
        """What the API says about the pod now; None if it is still ours to bind (or the API does not answer)."""
        try:
            pod = await self._client.get(PODS.path(bind.namespace, bind.name))
        except ApiError as error:
            return BindResult(bind, Outcome.MOVED, str(error)) if error.status == 404 else None
        except (ConnectionLost, ConfigError):
            return None
        metadata = pod.get("metadata") or {}
        node = (pod.get("spec") or {}).get("nodeName") or ""
        if metadata.get("uid") != bind.uid:
            return BindResult(bind, Outcome.MOVED, "the pod was replaced by another of its name")
        if node == bind.node:
            return BindResult(bind, Outcome.BOUND)
        if node:
            return BindResult(bind, Outcome.MOVED, f"the pod is bound to node {node}")
        if metadata.get("deletionTimestamp"):
            return BindResult(bind, Outcome.MOVED, "the pod is being deleted")
        if (pod.get("spec") or {}).get("schedulingGates"):
            return BindResult(bind, Outcome.REFUSED, message)
        return None
