"""OpenTelemetry spans: cycles with their stages, and the writes of each cycle. Imported only if configured."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from importlib.metadata import version as installed
from time import perf_counter_ns, time_ns

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, Status, StatusCode, set_span_in_context

from phalanx.daemon.decision_log import Wake, unit_of
from phalanx.daemon.metrics.stages import Stage
from phalanx.execution.binder import BindOutcome, BindResult
from phalanx.execution.evictor import EvictionOutcome, EvictResult
from phalanx.model.decisions import Bind, Evict, Plan

__all__ = ["Tracing", "connect"]

# Maximum number of cycles with a stored span, the parent of the spans of their writes.
_REMEMBERED = 4096


class Tracing:
    """Exporter of spans with the id of their decision (`phalanx.cause`), which log lines have too."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("phalanx")
        # Span and end (nanoseconds since the epoch) by cycle.
        self._cycles: OrderedDict[str, tuple[Context, int]] = OrderedDict()

    def cycle(self, plan: Plan, wake: Wake, stages: Sequence[Stage]) -> None:
        """Record the spans of a cycle and its stages, which were timed by `time.perf_counter`."""
        if not stages:
            return
        # Wall clocks step; intervals are measured by the performance counter.
        epoch = time_ns() - perf_counter_ns()
        times = [(name, epoch + int(begun * 1e9), epoch + int(ended * 1e9)) for name, begun, ended in stages]
        cause, end = f"c{plan.cycle}", times[-1][2]
        attributes: dict[str, str | int | bool] = {
            "phalanx.cause": cause,
            "phalanx.event": wake.event,
            "phalanx.binds": len(plan.binds),
            "phalanx.evictions": len(plan.evictions),
            "phalanx.complete": plan.complete,
        }
        span = self._tracer.start_span("cycle", context=Context(), start_time=times[0][1], attributes=attributes)
        inside = set_span_in_context(span, Context())
        for name, begun, ended in times:
            self._tracer.start_span(name, inside, start_time=begun).end(ended)
        span.end(end)
        if plan.binds or plan.evictions:
            self._cycles[cause] = (inside, end)
            if len(self._cycles) > _REMEMBERED:
                self._cycles.popitem(last=False)

    def bound(self, result: BindResult) -> None:
        span = self._write("bind", result.bind)
        self._end(span, result.outcome.value, result.outcome is BindOutcome.BOUND, result.message)

    def evicted(self, result: EvictResult) -> None:
        span = self._write("evict", result.evict)
        span.set_attribute("phalanx.reason", result.evict.reason.value)
        done = result.outcome in (EvictionOutcome.EVICTED, EvictionOutcome.GONE)
        self._end(span, result.outcome.value, done, result.message)

    def _write(self, name: str, decided: Bind | Evict) -> Span:
        inside, begun = self._cycles.get(decided.cause.partition(".")[0], (Context(), time_ns()))
        attributes = {
            "phalanx.cause": decided.cause,
            "phalanx.unit": unit_of(decided),
            "k8s.namespace.name": decided.namespace,
            "k8s.pod.name": decided.name,
            "k8s.pod.uid": decided.uid,
            "k8s.node.name": decided.node,
        }
        return self._tracer.start_span(name, inside, start_time=begun, attributes=attributes)

    def _end(self, span: Span, outcome: str, done: bool, message: str) -> None:
        span.set_attribute("phalanx.outcome", outcome)
        if not done:
            span.set_status(Status(StatusCode.ERROR, message))
        span.end()


def connect(endpoint: str) -> Tracing:
    """Return an exporter that sends spans to a collector at a URL (OTLP over HTTP), in its own thread.

    Raises ImportError without the extra `otel`. The environment variables of the SDK apply: OTEL_TRACES_SAMPLER,
    OTEL_EXPORTER_OTLP_HEADERS, OTEL_RESOURCE_ATTRIBUTES.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    about = {"service.name": "phalanx-scheduler", "service.version": installed("phalanx-scheduler")}
    provider = TracerProvider(resource=Resource.create(about))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces")))
    return Tracing(provider)
