"""What the tests of the examples need: their package installed, and a cluster to plan for."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import Plan
from phalanx.model.events import NodeUpdated, PodUpdated
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler

GIB = 2**30
Pods = Mapping[str, tuple[int, int]]
"""name -> (cores that it asks for, priority)."""
Schedule = Callable[[str, Mapping[str, dict[str, str]], Pods], Plan]


@pytest.fixture(autouse=True)
def installed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the entry points of the example's pyproject.toml known, as `pip install` does."""
    project = tomllib.loads((request.path.parent / "pyproject.toml").read_text("utf-8"))["project"]
    info = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n", "utf-8")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    info.joinpath("entry_points.txt").write_text("\n".join(lines), "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture
def policy(request: pytest.FixtureRequest) -> Path:
    """The example's policy file."""
    return request.path.parent / "policy.yaml"


@pytest.fixture
def schedule() -> Schedule:
    """Plans for pods on nodes of 8 cores with the labels given, under a policy's text."""

    def run(text: str, nodes: Mapping[str, dict[str, str]], pods: Pods) -> Plan:
        state = ClusterState()
        offered = (("cpu", 8000), ("memory", 64 * GIB), ("pods", 110))
        for name, labels in nodes.items():
            state.apply(NodeUpdated(Node(name, allocatable=offered, labels=tuple(labels.items()))))
        for name, (cores, priority) in pods.items():
            requests = (("cpu", 1000 * cores),)
            spec = PodClass(requests=requests, scored_cpu=1000 * cores, scored_memory=GIB)
            state.apply(PodUpdated(Pod("default", name, name, spec, requests, "phalanx", priority=priority)))
        return Scheduler(state, load_policy(text)).cycle(now=1000.0)

    return run
