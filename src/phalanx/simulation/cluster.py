"""The simulated cluster: read from a file of objects, a table of nodes, or the header of a batch log."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.dialects.intake import Intake
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.registry import installed_dialects
from phalanx.dialects.signatures import Signer
from phalanx.model.devices.cards import Card, Family
from phalanx.model.events import ClusterEvent, NodeUpdated
from phalanx.model.node import Node
from phalanx.model.resources import CPU, MEMORY, PODS, requests_of
from phalanx.model.text.decoding import quoted
from phalanx.simulation.capture import KIND as CAPTURE
from phalanx.simulation.capture import Capture, read_capture, take_in_all
from phalanx.simulation.delays import Delays
from phalanx.simulation.documents import OWN_VERSION, FileObject, read_documents, take_in
from phalanx.simulation.errors import InputError
from phalanx.simulation.gpus import GPU_MILLI, GPU_MODEL, WHOLE_CARD
from phalanx.simulation.tables import table, whole
from phalanx.simulation.workloads.distributions import Distribution
from phalanx.simulation.workloads.swf import read_swf

_OPENB = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
# Default limit of pods per node of a kubelet.
_PODS = 110
# The trace has no limit of pods per node, and no pod was refused for that reason.
_MOST_PODS = 1000
_MIB = 2**20
_OWN = ("NodePool", "Machine", "World", CAPTURE)
_MOST_NODES = 1_000_000
_DELAYS = ("startDelay", "endDelay", "startDelaySeconds")


class SimulatedCluster(msgspec.Struct, frozen=True):
    """The cluster at the beginning. `entries` are applied by the dialects, `nodes` directly.

    `processors` is the size of a machine that is one pool of processors, 0 for a cluster of nodes. `start` is the
    beginning of the log (seconds since the epoch), 0 if unknown."""

    name: str
    entries: tuple[FileObject, ...] = ()
    nodes: tuple[Node, ...] = ()
    processors: int = 0
    start: int = 0
    delays: Delays = Delays()
    capture: Capture | None = None

    def open(self, options: DialectOptions | None = None) -> tuple[Intake, list[ClusterEvent]]:
        """Return the intake for later objects, and the events of the initial ones. Raises InputError."""
        # The copy has no keys, so it accepts every signature of a scheduler.
        signer = Signer(unchecked=True) if self.capture is not None else None
        intake = Intake(self.schedulers, options, signer, dialects=installed_dialects())
        events: list[ClusterEvent] = [NodeUpdated(node) for node in self.nodes]
        if self.capture is not None:
            # A live cluster can have invalid objects: the live scheduler reports them, so warnings are ignored.
            return intake, events + take_in_all(intake, self.capture, self.entries)
        for entry in self.entries:
            events += take_in(intake, entry)
        warnings = intake.drain_warnings()
        for warning in warnings:
            if warning.type == "Warning":
                about = warning.about
                raise InputError(f"{self.name}: {about.kind} {about.name}: {warning.message}")
        return intake, events

    @property
    def schedulers(self) -> tuple[str, ...]:
        return self.capture.schedulers if self.capture is not None else ("phalanx",)


def read_cluster(text: str, name: str) -> SimulatedCluster:
    """Read a cluster by the file name: `.swf` is a log (one pool with the processors of its header), `.csv` a table
    of nodes, any other name YAML or JSON. Raises InputError."""
    if name.endswith(".swf"):
        log = read_swf(text, name)
        return pool(log.processors, name, log.start or 0)
    if name.endswith(".csv"):
        return SimulatedCluster(name, nodes=tuple(_nodes_of_table(text, name)))
    entries, delays, machine = list[FileObject](), Delays(), SimulatedCluster(name)
    capture: Capture | None = None
    for entry in read_documents(text, name):
        if not entry.own:
            entries.append(entry)
        elif entry.api_version != OWN_VERSION or entry.kind not in _OWN:
            raise InputError(f"{entry.place}: write apiVersion {OWN_VERSION} and kind {' or '.join(_OWN)}")
        elif entry.kind == CAPTURE:
            capture = read_capture(entry)
        elif entry.kind == "World":
            delays = _delays(entry)
        elif entry.kind == "Machine":
            processors = _only(entry, "processors")
            if not isinstance(processors, int) or isinstance(processors, bool):
                raise InputError(f"{entry.place}: spec.processors is {quoted(processors)}; write a whole number")
            machine = pool(processors, entry.place)
        else:
            entries += _members(entry)
    start = capture.moment if capture is not None else 0
    cluster = SimulatedCluster(
        name, tuple(entries), machine.nodes, machine.processors, start, delays=delays, capture=capture
    )
    if capture is not None and any(entry.kind == "Node" for entry in entries):
        # A program wrote the capture, so checks for mistakes of users are skipped.
        return cluster
    nodes = sum(isinstance(event, NodeUpdated) for event in cluster.open()[1])
    if not nodes:
        raise InputError(f"{name}: no node; write v1 Node objects, or a NodePool of {OWN_VERSION}")
    if machine.processors and nodes > 1:
        raise InputError(f"{name}: a Machine must be the only node; remove the other nodes, or write a NodePool")
    return cluster


def pool(processors: int, name: str, start: int = 0) -> SimulatedCluster:
    """Return a machine whose processors are one pool, so the place of a job within it does not matter."""
    if processors < 1:
        raise InputError(f"{name}: {processors} processors; write at least 1")
    node = Node("pool", allocatable=requests_of({CPU: processors * 1000, PODS: processors}))
    return SimulatedCluster(name, nodes=(node,), processors=processors, start=start)


def _members(entry: FileObject) -> list[FileObject]:
    """Return the Node objects of a NodePool: `count` copies of its spec, named `<name>-<number>`."""
    spec = entry.document.get("spec")
    if not isinstance(spec, Mapping):
        raise InputError(f"{entry.place}: spec is missing; write spec: {{count: 10, allocatable: {{cpu: 64}}}}")
    known = ("count", "allocatable", "labels", "annotations", "taints")
    for key in spec:
        if key not in known:
            raise InputError(f"{entry.place}: spec.{key} is unknown; write {', '.join(known)}")
    count, allocatable = spec.get("count"), spec.get("allocatable")
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MOST_NODES:
        raise InputError(
            f"{entry.place}: spec.count is {quoted(count)}; write a whole number from 1 to {_MOST_NODES}"
        )
    if not isinstance(allocatable, Mapping) or not allocatable:
        raise InputError(
            f"{entry.place}: spec.allocatable is {quoted(allocatable)}; write {{cpu: 64, memory: 256Gi}}"
        )
    prefix = entry.document["metadata"]["name"]
    offered = {PODS: _PODS, **allocatable}
    nodes = []
    for number in range(count):
        name = f"{prefix}-{number}"
        labels = {"kubernetes.io/hostname": name, **(spec.get("labels") or {})}
        document = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": spec.get("annotations") or {}},
            "spec": {"taints": spec.get("taints") or []},
            "status": {"allocatable": offered, "capacity": offered},
        }
        nodes.append(FileObject(f"{entry.place}: node {name}", document))
    return nodes


def _delays(entry: FileObject) -> Delays:
    """Read the delays of a World: distributions, and `startDelaySeconds` for a fixed start delay."""
    spec = entry.document.get("spec")
    stated = dict(spec) if isinstance(spec, Mapping) else {}
    for key in stated:
        if key not in _DELAYS:
            raise InputError(f"{entry.place}: spec.{key} is unknown; write {', '.join(_DELAYS)}")
    if "startDelay" in stated and "startDelaySeconds" in stated:
        raise InputError(f"{entry.place}: spec has startDelay and startDelaySeconds; write startDelay only")
    read = {
        key: Distribution(value, f"{entry.place}: spec.{key}") for key, value in stated.items() if value is not None
    }
    return Delays(read.get("startDelay") or read.get("startDelaySeconds"), read.get("endDelay"))


def _only(entry: FileObject, field: str) -> object:
    """Return the value of the only field that the spec can have. Raises InputError for other fields."""
    spec = entry.document.get("spec")
    for key in spec if isinstance(spec, Mapping) else ():
        if key != field:
            raise InputError(f"{entry.place}: spec.{key} is unknown; write {field}")
    return spec.get(field) if isinstance(spec, Mapping) else None


def _nodes_of_table(text: str, name: str) -> list[Node]:
    """Read the node list of the openb trace: sn, cpu_milli, memory_mib, gpu, model."""
    nodes = []
    for line, row in table(text, name, _OPENB):
        amounts = {key: whole(row, key, name, line) for key in ("cpu_milli", "memory_mib", "gpu")}
        labels = ((GPU_MODEL, row["model"]),) if row["model"] else ()
        nodes.append(
            Node(
                row["sn"],
                allocatable=requests_of(
                    {
                        CPU: amounts["cpu_milli"],
                        MEMORY: amounts["memory_mib"] * _MIB,
                        GPU_MILLI: amounts["gpu"] * WHOLE_CARD,
                        PODS: _MOST_PODS,
                    }
                ),
                labels=tuple(sorted((*labels, ("kubernetes.io/hostname", row["sn"])))),
                cards=tuple(
                    Card(Family.KOORDINATOR, str(number), WHOLE_CARD, _MOST_PODS, row["model"])
                    for number in range(amounts["gpu"])
                ),
            )
        )
    return nodes
