"""Small worlds for tests: nodes and jobs in, histories out."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.cluster.state import ClusterState
from phalanx.model.events import ClusterEvent, NodeUpdated
from phalanx.model.node import Node
from phalanx.model.resources import requests_of
from phalanx.model.run_time import RunTime
from phalanx.scheduling.policy.loader import load_policy
from phalanx.simulation.delays import Delays
from phalanx.simulation.history import JobHistory
from phalanx.simulation.job import SimulatedJob, pod_class
from phalanx.simulation.workloads.distributions import Distribution
from phalanx.simulation.world import World

START = 1_000_000
PLAIN = 'actions: "allocate"\ntiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}]}]\n'
EVICTING = PLAIN.replace("allocate", "allocate, preempt")


def job(
    name: str, submit: int = 0, run: int | None = 100, cpu: int = 1, limit: int = 0, **fields: object
) -> SimulatedJob:
    """Return a job of one pod with `cpu` cores, unless `pods` is given."""
    fields.setdefault("minimum", fields.get("pods", 1))
    fields.setdefault("width", fields.get("pods", 1))
    limits = RunTime(limit=limit, limit_source="test") if limit else RunTime()
    grace = fields.get("grace", 0)
    assert isinstance(grace, int)
    return SimulatedJob(name, submit, run, pod_class({"cpu": cpu * 1000}, limit, grace), limits=limits, **fields)  # type: ignore[arg-type]


def nodes(count: int, cpu: int = 4) -> list[ClusterEvent]:
    offered = requests_of({"cpu": cpu * 1000, "pods": 110})
    return [NodeUpdated(Node(f"n{number}", allocatable=offered)) for number in range(count)]


def world(
    jobs: Iterable[SimulatedJob],
    there: Iterable[ClusterEvent],
    policy: str = PLAIN,
    delay: object = 0,
    end_delay: object = 0,
) -> World:
    delays = Delays(Distribution(delay, "delay"), Distribution(end_delay, "end delay"))
    made = World(ClusterState(), load_policy(policy), jobs, start=START, delays=delays, seed=1)
    made.apply(there)
    return made


def story(made: World) -> dict[str, tuple[int | None, int | None, str]]:
    """job -> (start, end, outcome), in seconds since the beginning."""
    return {each.name: (_since(each.start), _since(each.end), each.outcome.value) for each in made.histories}


def history(made: World, name: str) -> JobHistory:
    return next(each for each in made.histories if each.name == name)


def _since(when: int | None) -> int | None:
    return when - START if when is not None else None
