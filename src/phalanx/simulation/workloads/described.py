"""Workloads described in YAML: kinds of jobs with arrivals and run times, and what else happens."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from phalanx.dialects.core import decode_pod
from phalanx.dialects.intake import Intake
from phalanx.dialects.pods.decoder import PodDecoder
from phalanx.model.pod import PodClass
from phalanx.model.run_time import RunTime
from phalanx.simulation.cluster import SimulatedCluster
from phalanx.simulation.documents import OWN_VERSION, FileObject, read_entry, take_away, take_in
from phalanx.simulation.errors import InputError
from phalanx.simulation.event_queue import EventOrder
from phalanx.simulation.job import NAMESPACE, SimulatedJob
from phalanx.simulation.spans import seconds
from phalanx.simulation.workloads.distributions import Distribution, span_or_factor, stream, weighted
from phalanx.simulation.world import World

_MOST_JOBS = 10_000_000


class _Wire(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """Spans and distributions stay as they came: `Distribution` and `seconds` read them."""


class DescribedJobs(_Wire, frozen=True):
    """`count` jobs, or as many as arrive until `until`. `interval` lies between two arrivals (without it all come
    at `at`); `pods` is the size of the gang, `minimum` its quorum (all of it by default). `limit` is when a pod is
    killed, or how many times its own run time (`{factor: 2}`); `estimate` what its user says, likewise."""

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


class TimedEvent(_Wire, frozen=True):
    """One of: a node is lost (and returns after `duration`), an object is as it says from now on, or is gone."""

    at: Any
    node_lost: str = ""
    duration: Any = None
    apply: dict[str, Any] | None = None
    delete: dict[str, Any] | None = None


class NodeFailures(_Wire, frozen=True):
    """Every node fails now and then, each at moments of its own."""

    interval: Any
    repair: Any
    until: Any


class Spec(_Wire, frozen=True):
    jobs: list[DescribedJobs] = []
    events: list[TimedEvent] = []
    node_failures: NodeFailures | None = None


class DescribedWorkload:
    """One document of kind Workload. Raises InputError for what it cannot mean."""

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
                raise InputError(f"{entry.place}: spec.jobs: name is {kind.name!r}; give each a name of its own")
        self._classes = {kind.name: self._pod_class(kind) for kind in self._spec.jobs}
        # Once with any seed, so that what is wrong is told before anything runs.
        self._draw(0)
        for happening in self._spec.events:
            self._check(happening)

    def jobs(self, seed: int, cluster: SimulatedCluster) -> list[SimulatedJob]:
        return self._draw(seed)

    def schedule(self, world: World, intake: Intake, seed: int) -> None:
        for number, happening in enumerate(self._spec.events):
            what = f"{self._entry.place}: spec.events[{number}]"
            when = world.start + seconds(happening.at, f"{what}.at")
            if happening.node_lost:
                if happening.node_lost not in world.nodes:
                    raise InputError(f"{what}.nodeLost is {happening.node_lost!r}; there is no such node")
                back = happening.duration
                duration = seconds(back, f"{what}.duration") if back is not None else None
                world.lose_node(when, happening.node_lost, duration)
            else:
                removed = happening.apply is None
                entry = read_entry(happening.delete if removed else happening.apply, what)
                change = partial(take_away if removed else take_in, intake, entry)
                world.at(when, EventOrder.NODE if entry.kind == "Node" else EventOrder.POLICY, change)
        if (failures := self._spec.node_failures) is not None:
            self._schedule_failures(failures, world, seed)

    def _schedule_failures(self, failures: NodeFailures, world: World, seed: int) -> None:
        what = f"{self._entry.place}: spec.nodeFailures"
        interval = Distribution(failures.interval, f"{what}.interval")
        repair, until = Distribution(failures.repair, f"{what}.repair"), seconds(failures.until, f"{what}.until")
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
        what = f"{self._entry.place}: spec.jobs: {kind.name}"
        arrivals, lengths, sizes = (
            stream(seed, self.name, kind.name, purpose) for purpose in ("arrivals", "run times", "sizes")
        )
        interval = Distribution(kind.interval, f"{what}: interval") if kind.interval is not None else None
        run_time = Distribution(kind.run_time, f"{what}: runTime") if kind.run_time is not None else None
        pods = weighted(kind.pods, f"{what}: pods")
        until = seconds(kind.until, f"{what}: until") if kind.until is not None else None
        grace, checkpoint = seconds(kind.grace, f"{what}: grace"), seconds(kind.checkpoint, f"{what}: checkpoint")
        when, found = seconds(kind.at, f"{what}: at"), list[SimulatedJob]()
        if kind.count < 1:
            raise InputError(f"{what}: count is {kind.count}; write at least 1")
        for number in range(kind.count):
            if interval is not None and (number or kind.at == 0):
                when += interval.draw(arrivals)
            if until is not None and when >= until:
                break
            length = max(1, run_time.draw(lengths)) if run_time is not None else None
            size = sizes.choices(list(pods), list(pods.values()))[0]
            if kind.minimum > size:
                raise InputError(f"{what}: minimum is {kind.minimum}; write at most the number of pods, {size}")
            limit = span_or_factor(kind.limit, length, f"{what}: limit")
            estimate = span_or_factor(kind.estimate, length, f"{what}: estimate")
            limits = RunTime(limit, "limit of the workload" if limit else "", 0, estimate,
                             "estimate of the workload" if estimate else "")  # fmt: skip
            base = self._classes[kind.name]
            found.append(
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
                )
            )
        return found

    def _pod_class(self, kind: DescribedJobs) -> PodClass:
        """Read as a pod of the API is: whatever it may ask for counts here too."""
        what = f"{self._entry.place}: spec.jobs: {kind.name}"
        if bool(kind.requests) == (kind.pod is not None):
            raise InputError(f"{what}: write either requests, such as {{cpu: 4}}, or pod with the spec of a pod")
        container = {"name": "main", "resources": {"requests": kind.requests}}
        spec = kind.pod if kind.pod is not None else {"containers": [container]}
        metadata = {"name": kind.name, "namespace": kind.namespace, "uid": kind.name}
        pod = decode_pod(msgspec.json.encode({"metadata": metadata, "spec": spec}))
        decoder = PodDecoder()
        template = decoder.template(pod)
        found = decoder.pod(pod, template, "")
        if found.problem:
            raise InputError(f"{what}: {found.problem}")
        return template.pod_class

    def _check(self, happening: TimedEvent) -> None:
        place = f"{self._entry.place}: spec.events"
        said = [bool(happening.node_lost), happening.apply is not None, happening.delete is not None]
        if sum(said) != 1:
            raise InputError(f"{place}: at {happening.at}: write one of nodeLost, apply and delete")
        seconds(happening.at, f"{place}: at")
