"""Spans: a cycle, its stages and its writes are one tree, and have the id of their decision."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from phalanx.daemon.telemetry import Telemetry
from phalanx.daemon.tracing import Tracing
from phalanx.execution.binder import BindOutcome, BindResult
from phalanx.execution.evictor import EvictionOutcome, EvictResult
from phalanx.model.decisions import Plan
from tests.scheduling.scenario import Scenario


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def telemetry(exporter: InMemorySpanExporter) -> Telemetry:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Telemetry(None, Tracing(provider))


def cycle(telemetry: Telemetry, world: Scenario) -> Plan:
    begin = telemetry.stages.begin_cycle()
    begin("pop")
    plan = world.cycle()
    begin("execute")
    telemetry.cycle(plan, 0.1, world.state, world.now)
    return plan


def named(spans: Sequence[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [span for span in spans if span.name == name]


def attribute(span: ReadableSpan, name: str) -> object:
    assert span.attributes is not None
    return span.attributes[name]


def parent(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


def test_a_cycle_has_its_stages_and_its_bindings_below_it(
    telemetry: Telemetry, exporter: InMemorySpanExporter
) -> None:
    world = Scenario().node("n1", cpu=4).job("train", 2, cpu=1)
    plan = cycle(telemetry, world)
    first, second = plan.binds
    telemetry.bound(BindResult(first, BindOutcome.BOUND))
    telemetry.bound(BindResult(second, BindOutcome.REFUSED, "403 Forbidden"))
    spans = exporter.get_finished_spans()
    [whole] = named(spans, "cycle")
    assert whole.parent is None
    assert (attribute(whole, "phalanx.cause"), attribute(whole, "phalanx.binds")) == (first.cause, 2)
    below = [span for span in spans if span is not whole]
    assert whole.context is not None
    assert {parent(span) for span in below} == {whole.context.span_id}
    take, send = *named(spans, "pop"), *named(spans, "execute")
    assert (whole.start_time, whole.end_time) == (take.start_time, send.end_time)
    assert take.end_time == send.start_time
    good, bad = named(spans, "bind")
    for span, bind in ((good, first), (bad, second)):
        assert attribute(span, "phalanx.cause") == bind.cause
        assert attribute(span, "phalanx.unit") == "gang ns/train"
        assert attribute(span, "k8s.pod.name") == bind.name
        assert span.start_time == whole.end_time
    assert good.status.status_code is StatusCode.UNSET
    assert (bad.status.status_code, bad.status.description) == (StatusCode.ERROR, "403 Forbidden")


def test_eviction_span_is_a_child_of_its_cycle(telemetry: Telemetry, exporter: InMemorySpanExporter) -> None:
    world = Scenario().node("n1", cpu=2).job("low", 2, cpu=1).settle()
    plan = cycle(telemetry, world.job("high", 2, cpu=1, priority=10))
    for evict in plan.evictions:
        telemetry.evicted(EvictResult(evict, EvictionOutcome.EVICTED))
    spans = exporter.get_finished_spans()
    [whole] = named(spans, "cycle")
    assert whole.context is not None
    evictions = named(spans, "evict")
    assert [attribute(span, "phalanx.cause") for span in evictions] == [evict.cause for evict in plan.evictions]
    assert {parent(span) for span in evictions} == {whole.context.span_id}


def test_cycles_are_traces_of_their_own(telemetry: Telemetry, exporter: InMemorySpanExporter) -> None:
    world = Scenario().node("n1", cpu=4)
    cycle(telemetry, world)
    cycle(telemetry, world)
    traces = [span.context.trace_id for span in named(exporter.get_finished_spans(), "cycle") if span.context]
    assert len(set(traces)) == 2


def test_nothing_is_imported_where_no_spans_are_wanted() -> None:
    program = (
        "import phalanx.cli.services.scheduler, phalanx.daemon.service, sys; print('opentelemetry' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
