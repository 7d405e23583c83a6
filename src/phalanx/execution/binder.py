"""Bindings of pods to nodes: each takes effect at most once, even if requests fail."""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from phalanx.dialects.devices.device_plans import device_plan
from phalanx.dialects.gangs.held_room import encode_held
from phalanx.dialects.gangs.plan_marks import PLAN_ANNOTATION, encode_mark
from phalanx.dialects.pods.binding_marks import encode_binding
from phalanx.dialects.signatures import Signer
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost, Unreachable
from phalanx.kube.retry import Backoff
from phalanx.model.decisions import Bind

log = logging.getLogger(__name__)


class BindOutcome(enum.Enum):
    """Outcome of a pod's binding."""

    BOUND = "bound"
    MOVED = "moved"  # deleted, terminating or bound elsewhere: the watch delivers the details
    REFUSED = "refused"  # definitely rejected; the pod is still pending


class BindResult(msgspec.Struct, frozen=True):
    bind: Bind
    outcome: BindOutcome
    message: str = ""


# Returns the reason why a binding must not be posted, or the seconds until the next call; None permits it.
Guard = Callable[[Bind], str | float | None]


def no_objection(bind: Bind) -> str | None:
    return None


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


class _Posting:
    """State of a binding in progress. `open`: the last attempt may have taken effect without an answer."""

    __slots__ = ("backoff", "bind", "guard", "message", "open", "tries")

    def __init__(self, bind: Bind, guard: Guard) -> None:
        self.bind = bind
        self.guard = guard
        # Most bindings need no second attempt.
        self.backoff: Backoff | None = None
        self.open = False
        self.tries = 0
        self.message = ""


class Binder:
    """Poster of bindings with the pod's uid, through a write pool; each outcome is reported exactly once.

    The binding endpoint answers 409 for a wrong uid and for a bound pod, also if our own lost first attempt bound
    it; a lost connection or a 5xx answer does not say whether the write took effect. In all these cases the pod
    is read and compared before the next attempt (docs/rules/kubernetes_native.md, B3 and B4). `attempts` limits
    transient rejections; an unreachable server is waited for. `signer` signs the marks of bindings, plan marks and
    devices of pods. `now` returns seconds since the epoch.
    """

    def __init__(
        self,
        client: KubeClient,
        pool: WritePool,
        report: Callable[[BindResult], None],
        signer: Signer,
        *,
        attempts: int = 6,
        now: Callable[[], float] = time.time,
        backoff: Callable[[], Backoff] = lambda: Backoff(base=0.1, cap=5.0),
    ) -> None:
        self._client = client
        self._pool = pool
        self._report = report
        self._signer = signer
        self._attempts = attempts
        self._now = now
        self._backoff = backoff
        self._encoder = msgspec.json.Encoder()
        self.in_flight = 0

    def submit(self, binds: Iterable[Bind], guard: Guard = no_objection) -> None:
        """Submit bindings. `guard` is called before each attempt: the node may have been deleted since the plan."""
        for bind in binds:
            self.in_flight += 1
            posting = _Posting(bind, guard)
            self._pool.submit(Urgency.BIND, partial(self._advance, posting))

    async def _advance(self, posting: _Posting) -> float | None:
        try:
            step = await self._step(posting)
        except Exception as error:
            bind = posting.bind
            log.exception("binding %s/%s failed unexpectedly", bind.namespace, bind.name)
            step = BindResult(bind, BindOutcome.REFUSED, f"{type(error).__name__}: {error}")
        if isinstance(step, float):
            return step
        self.in_flight -= 1
        self._report(step)
        return None

    async def _step(self, posting: _Posting) -> BindResult | float:
        """Try to bind a pod. Return the result, or the seconds until the next try."""
        bind = posting.bind
        if not posting.open:
            objection = posting.guard(bind)
            if isinstance(objection, float):
                return objection
            if objection is not None:
                return BindResult(bind, BindOutcome.REFUSED, objection)
            try:
                path = PODS.path(bind.namespace, bind.name, "binding")
                await self._client.request("POST", path, body=self._body(bind))
            except (ApiError, ConfigError, ConnectionLost) as error:
                step = self._failed(posting, error)
                if step is not None:
                    return step
            else:
                return BindResult(bind, BindOutcome.BOUND)
        settled = await self._look(posting)
        if settled is not None:
            return settled
        if not posting.open and posting.tries >= self._attempts:
            return BindResult(bind, BindOutcome.REFUSED, posting.message)
        return self._pause(posting)

    def _body(self, bind: Bind) -> bytes:
        annotations = dict(bind.annotations)
        if annotations:
            annotations |= device_plan(annotations, self._signer, bind.uid, bind.node)
        if bind.mark is not None and bind.gang is not None:
            annotations[PLAN_ANNOTATION] = encode_mark(bind.mark, self._signer, bind.uid, bind.gang)
        else:
            annotations |= encode_binding(self._signer, bind.uid, bind.node, int(self._now()))
        if bind.held and bind.gang is not None:
            annotations |= encode_held(bind.held, self._signer, bind.uid, bind.gang)
        return self._encoder.encode(
            _Binding(_Metadata(bind.name, bind.namespace, bind.uid, annotations), _Target(bind.node))
        )

    def _failed(
        self, posting: _Posting, error: ApiError | ConfigError | ConnectionLost
    ) -> BindResult | float | None:
        """Return the result of a binding whose request failed, the seconds until the next attempt, or None if only
        the pod shows the outcome."""
        if isinstance(error, ApiError):
            return self._refused(posting, error)
        posting.message = str(error)
        if isinstance(error, Unreachable | ConfigError):  # no request was sent
            return self._pause(posting)
        posting.open = True
        return None

    def _pause(self, posting: _Posting, retry_after: float | None = None) -> float:
        """Return the seconds until the next attempt of a binding."""
        if posting.backoff is None:
            posting.backoff = self._backoff()
        return posting.backoff.next(retry_after)

    def _refused(self, posting: _Posting, error: ApiError) -> BindResult | float | None:
        posting.message = f"{error.status} {error.reason}: {error.message}"
        posting.tries += 1
        if error.status == 409 or error.status >= 500:
            posting.open = True
            return None
        if error.status == 404 and error.from_api_server:
            return BindResult(posting.bind, BindOutcome.MOVED, posting.message)
        if error.status in (404, 429) and posting.tries < self._attempts:
            return self._pause(posting, error.retry_after)
        return BindResult(posting.bind, BindOutcome.REFUSED, posting.message)

    async def _look(self, posting: _Posting) -> BindResult | None:
        """Read the pod and return the outcome of its binding; None if the pod is unbound, or without an answer."""
        bind = posting.bind
        try:
            pod = await self._client.get(PODS.path(bind.namespace, bind.name))
        except ApiError as error:
            gone = error.status == 404 and error.from_api_server
            return BindResult(bind, BindOutcome.MOVED, f"{error.reason}: {error.message}") if gone else None
        except (ConnectionLost, ConfigError):
            return None
        posting.open = False
        metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
        node = spec.get("nodeName") or ""
        if metadata.get("uid") != bind.uid:
            return BindResult(bind, BindOutcome.MOVED, "the pod was replaced by another of its name")
        if node == bind.node:
            return BindResult(bind, BindOutcome.BOUND)
        if node:
            return BindResult(bind, BindOutcome.MOVED, f"the pod is bound to node {node}")
        if metadata.get("deletionTimestamp"):
            return BindResult(bind, BindOutcome.MOVED, "the pod is being deleted")
        if spec.get("schedulingGates"):
            return BindResult(bind, BindOutcome.REFUSED, posting.message)
        return None
