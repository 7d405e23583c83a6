"""Workloads described in YAML: kinds of jobs with arrivals and run times, and other events."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from phalanx.dialects.core import decode_pod
from phalanx.dialects.intake import Intake
from phalanx.dialects.pods.decoder import PodDecoder
from phalanx.model.pod import PodClass
from phalanx.model.run_time import RunTime
from phalanx.model.text.decoding import quoted
from phalanx.simulation.cluster import SimulatedCluster
from phalanx.simulation.documents import OWN_VERSION, FileObject, read_entry, take_away, take_in
from phalanx.simulation.errors import InputError
from phalanx.simulation.event_queue import EventOrder
from phalanx.simulation.job import NAMESPACE, SimulatedJob
from phalanx.simulation.spans import seconds
from phalanx.simulation.workloads.changes import InputChange
from phalanx.simulation.workloads.distributions import Distribution, span_or_factor, stream, weighted
from phalanx.simulation.world import World

_MOST_JOBS = 10_000_000


class _Wire(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """Base of decoded documents. Durations and distributions stay raw: `seconds` and `Distribution` parse them."""


class DescribedJobs(_Wire, frozen=True):
    """`count` jobs, or all that arrive before `until`. `interval` is the time between two arrivals (without it all
    arrive at `at`). `pods` is the size of the gang, `minimum` its quorum (by default all pods). `limit` is the
    run time after which a pod is killed, or a factor of it (`{factor: 2}`); `estimate` is the user's estimate. Pods
    fail as `failures` states. The job uses the advance `reservation` of that name."""

    name: str
    count: int = 1
    at: Any = 0
    interval: Any = None
    until: Any = None
    run_time: Any = None
    pods: Any = 1
    minimum: int = 0
    requests: dict[str, Any] = {}
    pod: dict[str, Any] | None = None
    limit: Any = None
    estimate: Any = None
    queue: str = "default"
    user: str = ""
    namespace: str = NAMESPACE
    priority: int = 0
    preemptable: bool = True
    grace: Any = 30
    checkpoint: Any = 0
    failures: JobFailures | None = None
    reservation: str = ""


class TimedEvent(_Wire, frozen=True):
    """One event: a node fails (and returns after `duration`, a distribution), an object is applied, or it is
    deleted."""

    at: Any
    node_lost: str = ""
    duration: Any = None
    apply: dict[str, Any] | None = None
    delete: dict[str, Any] | None = None


class JobFailures(_Wire, frozen=True):
    """Failures of single pods of a running job, at random intervals, at most `most` in number."""

    interval: Any
    most: int = 10


class NodeFailures(_Wire, frozen=True):
    """Failures of every node at independent random times."""

    interval: Any
    repair: Any
    until: Any


class Spec(_Wire, frozen=True):
    jobs: list[DescribedJobs] = []
    events: list[TimedEvent] = []
    node_failures: NodeFailures | None = None


class DescribedWorkload:
    """One document of kind Workload. Raises InputError for an invalid one."""

    start = 0

    def __init__(self, entry: FileObject) -> None:
        self._entry = entry
        self.name = str(entry.document["metadata"]["name"])
        if (entry.api_version, entry.kind) != (OWN_VERSION, "Workload"):
            raise InputError(f"{entry.place}: write apiVersion {OWN_VERSION} and kind Workload")
        try:
            self._spec = msgspec.convert(entry.document.get("spec"), Spec)
        except msgspec.ValidationError as error:
            raise InputError(f"{entry.place}: spec: {error}") from error
        names = [kind.name for kind in self._spec.jobs]
        for kind in self._spec.jobs:
            if not kind.name or names.count(kind.name) > 1:
                raise InputError(
                    f"{entry.place}: spec.jobs: name is {quoted(kind.name)}; give each kind a unique name"
                )
        self._classes = {kind.name: self._pod_class(kind) for kind in self._spec.jobs}
        # Draw once with any seed, so that errors are reported before the simulation runs.
        self._draw(0)
        for event in self._spec.events:
            self._check(event)

    def jobs(self, seed: int, cluster: SimulatedCluster) -> list[SimulatedJob]:
        return self._draw(seed)

    def changes(self, cluster: SimulatedCluster) -> list[InputChange]:
        return []

    def schedule(self, world: World, intake: Intake, seed: int) -> None:
        for number, event in enumerate(self._spec.events):
            path = f"{self._entry.place}: spec.events[{number}]"
            when = world.start + seconds(event.at, f"{path}.at")
            if event.node_lost:
                if event.node_lost not in world.nodes:
                    raise InputError(f"{path}.nodeLost is {quoted(event.node_lost)}; no such node in the cluster")
                duration = None
                if event.duration is not None:
                    draws = stream(seed, self.name, "node events", str(number))
                    duration = max(1, Distribution(event.duration, f"{path}.duration").draw(draws))
                world.lose_node(when, event.node_lost, duration)
            else:
                removed = event.apply is None
                entry = read_entry(event.delete if removed else event.apply, path)
                change = partial(take_away if removed else take_in, intake, entry)
                world.at(when, EventOrder.NODE if entry.kind == "Node" else EventOrder.POLICY, change)
        if (failures := self._spec.node_failures) is not None:
            self._schedule_failures(failures, world, seed)

    def _schedule_failures(self, failures: NodeFailures, world: World, seed: int) -> None:
        path = f"{self._entry.place}: spec.nodeFailures"
        interval = Distribution(failures.interval, f"{path}.interval")
        repair, until = Distribution(failures.repair, f"{path}.repair"), seconds(failures.until, f"{path}.until")
        for node in world.nodes:
            draws, when = stream(seed, self.name, "failures", node), 0
            while (when := when + max(1, interval.draw(draws))) < until:
                length = max(1, repair.draw(draws))
                world.lose_node(world.start + when, node, length)
                when += length

    def _draw(self, seed: int) -> list[SimulatedJob]:
        jobs: list[SimulatedJob] = []
        for kind in self._spec.jobs:
            jobs += self._jobs_of(kind, seed)
            if len(jobs) > _MOST_JOBS:
                raise InputError(f"{self._entry.place}: more than {_MOST_JOBS} jobs; write a smaller count")
        return sorted(jobs, key=lambda job: job.submit)

    def _jobs_of(self, kind: DescribedJobs, seed: int) -> list[SimulatedJob]:
        path = f"{self._entry.place}: spec.jobs: {kind.name}"
        arrivals, lengths, sizes = (
            stream(seed, self.name, kind.name, purpose) for purpose in ("arrivals", "run times", "sizes")
        )
        interval = Distribution(kind.interval, f"{path}: interval") if kind.interval is not None else None
        run_time = Distribution(kind.run_time, f"{path}: runTime") if kind.run_time is not None else None
        pods = weighted(kind.pods, f"{path}: pods")
        until = seconds(kind.until, f"{path}: until") if kind.until is not None else None
        grace, checkpoint = seconds(kind.grace, f"{path}: grace"), seconds(kind.checkpoint, f"{path}: checkpoint")
        when, jobs = seconds(kind.at, f"{path}: at"), list[SimulatedJob]()
        failures = Distribution(kind.failures.interval, f"{path}: failures.interval") if kind.failures else None
        if kind.failures and kind.failures.most < 1:
            raise InputError(f"{path}: failures.most is {kind.failures.most}; write at least 1, or omit failures")
        if kind.count < 1:
            raise InputError(f"{path}: count is {kind.count}; write at least 1")
        for number in range(kind.count):
            if interval is not None and (number or kind.at == 0):
                when += interval.draw(arrivals)
            if until is not None and when >= until:
                break
            length = max(1, run_time.draw(lengths)) if run_time is not None else None
            size = sizes.choices(list(pods), list(pods.values()))[0]
            if kind.minimum > size:
                raise InputError(f"{path}: minimum is {kind.minimum}; write at most the number of pods, {size}")
            limit = span_or_factor(kind.limit, length, f"{path}: limit")
            estimate = span_or_factor(kind.estimate, length, f"{path}: estimate")
            limits = RunTime(limit, "limit of the workload" if limit else "", 0, estimate,
                             "estimate of the workload" if estimate else "")  # fmt: skip
            base = self._classes[kind.name]
            jobs.append(
                SimulatedJob(
                    name=f"{kind.name}-{number}",
                    submit=when,
                    run_time=length,
                    pod_class=msgspec.structs.replace(base, run_limit=limit + grace) if limit else base,
                    pods=size,
                    minimum=kind.minimum or size,
                    width=size,
                    limits=limits,
                    queue=kind.queue,
                    user=kind.user,
                    namespace=kind.namespace,
                    priority=kind.priority,
                    preemptable=kind.preemptable,
                    grace=grace,
                    checkpoint=checkpoint,
                    failures=failures,
                    most_failures=kind.failures.most if kind.failures else 0,
                    reservation=kind.reservation,
                )
            )
        return jobs

    def _pod_class(self, kind: DescribedJobs) -> PodClass:
        """Decode the pod of a kind as one of the API, so that all its requests count."""
        path = f"{self._entry.place}: spec.jobs: {kind.name}"
        if bool(kind.requests) == (kind.pod is not None):
            raise InputError(f"{path}: write either requests, such as {{cpu: 4}}, or pod with the spec of a pod")
        container = {"name": "main", "resources": {"requests": kind.requests}}
        spec = kind.pod if kind.pod is not None else {"containers": [container]}
        metadata = {"name": kind.name, "namespace": kind.namespace, "uid": kind.name}
        pod = decode_pod(msgspec.json.encode({"metadata": metadata, "spec": spec}))
        decoder = PodDecoder()
        template = decoder.template(pod)
        decoded = decoder.pod(pod, template, "")
        if decoded.problem:
            raise InputError(f"{path}: {decoded.problem}")
        return template.pod_class

    def _check(self, event: TimedEvent) -> None:
        place = f"{self._entry.place}: spec.events"
        actions = [bool(event.node_lost), event.apply is not None, event.delete is not None]
        if sum(actions) != 1:
            raise InputError(f"{place}: at {event.at}: write one of nodeLost, apply and delete")
        seconds(event.at, f"{place}: at")
        if event.duration is not None:
            Distribution(event.duration, f"{place}: duration")
