"""Plugin `usage`: measured usage of nodes instead of requests (Volcano, plugins/usage)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from phalanx.plugin import (
    CPU_COLUMN,
    MEMORY_COLUMN,
    Arguments,
    BoolArray,
    ClassRecord,
    FloatArray,
    Load,
    NodeTable,
    Plugin,
    Rows,
)

_NAMES = ("CPU", "memory")
_ESTIMATOR = ("request_ratio", "burst_ratio", "risk_threshold", "risk_factor", "be_cpu", "be_mem")


class Estimator(msgspec.Struct, frozen=True):
    """Estimate of the usage of pods that were placed after the measurement: a part of their requests, more on busy
    nodes.
    """

    request_ratio: float = 0.7
    risk_threshold: float = 0.6
    risk_factor: float = 1.2


class Usage(Plugin):
    """Filter and score by measured usage.

    Nodes with CPU or memory usage above a threshold (percent of allocatable) accept no pods. Of the other nodes the
    least used score best, including pods placed after the measurement: weight x 100 x (weighted mean of the unused
    parts of CPU and memory). Nodes without a measurement in the last five minutes are not filtered and score 0.
    """

    name = "usage"
    needs_node_usage = True
    arguments = ("cpu.weight", "estimator", "memory.weight", "thresholds", "type", "usage.weight")

    def __init__(self, arguments: Arguments) -> None:
        self._weight = arguments.integer("usage.weight", 5, least=0)
        self._weights = arguments.integer("cpu.weight", 1, least=0), arguments.integer("memory.weight", 1, least=0)
        self._limits = _thresholds(arguments)
        self._estimator = _estimator(arguments)
        remarks = []
        if arguments.text("type", "average") != "average":
            remarks.append("type: only average is supported and used")
        unsupported = [key for key in ("burst_ratio", "be_cpu", "be_mem") if key in arguments.mapping("estimator")]
        if unsupported:
            remarks.append(f"estimator: {', '.join(unsupported)} have no effect: limits of pods are not supported")
        self.remarks = tuple(remarks)

    def filter(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> BoolArray:
        cpu, memory = self._above(nodes, rows)
        result: BoolArray = ~(cpu | memory)
        return result

    def explain(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        above = zip(_NAMES, self._limits, self._above(nodes, rows), strict=True)
        return [(f"node(s) used more than {limit}% of their {name}", out) for name, limit, out in above]

    def score(self, pod_class: ClassRecord, load: Load) -> FloatArray | float:
        total = sum(self._weights)
        table = load.nodes.load
        table.ensure()
        if not total or not self._weight or not table.known.any():
            return 0.0
        estimator, columns = self._estimator, [CPU_COLUMN, MEMORY_COLUMN]
        inverse = load.nodes.inverse[columns][:, load.rows]
        real, before = table.percent[:, load.rows] / 100.0, table.requested[:, load.rows] * inverse
        known = table.known[load.rows]
        if load.copies is not None:
            real, before, known = real[..., None], before[..., None], known[..., None]
        coming = (load.processor_and_memory() - before).clip(min=0.0) * estimator.request_ratio
        weights = np.array(self._weights, dtype=np.float64) / total
        composite = np.tensordot(weights, (real + coming).clip(max=1.0), axes=1)
        risk = np.where(composite >= estimator.risk_threshold, estimator.risk_factor, 1.0)
        used = np.tensordot(weights, (real + coming * risk).clip(max=1.0), axes=1)
        result: FloatArray = np.where(known, (1.0 - used) * (100.0 * self._weight), 0.0)
        return result

    def _above(self, nodes: NodeTable, rows: Rows) -> tuple[BoolArray, BoolArray]:
        table = nodes.load
        table.ensure()
        known = table.known[rows]
        cpu, memory = (known & (table.percent[at][rows] > most) for at, most in enumerate(self._limits))
        return cpu, memory


def _thresholds(arguments: Arguments) -> tuple[int, int]:
    own = Arguments(f"{arguments.owner}: thresholds", arguments.mapping("thresholds"))
    own.only(("cpu", "mem"))
    return own.integer("cpu", 80, least=0), own.integer("mem", 80, least=0)


def _estimator(arguments: Arguments) -> Estimator:
    settings: Mapping[str, object] = arguments.mapping("estimator")
    own, usual = Arguments(f"{arguments.owner}: estimator", settings), Estimator()
    own.only(_ESTIMATOR)
    return Estimator(
        own.number("request_ratio", usual.request_ratio, least=0),
        own.number("risk_threshold", usual.risk_threshold, least=0),
        own.number("risk_factor", usual.risk_factor, least=1),
    )
