"""Plugin `fgd`: place pods where they fragment GPUs least (Weng et al., "Beware of Fragmentation", USENIX ATC
2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from phalanx.cluster.devices.shared import SHARED_DEVICES, SharedDevices
from phalanx.model.pod import PodClass
from phalanx.model.text.decoding import quoted
from phalanx.plugin import (
    CPU_COLUMN,
    Arguments,
    ClassRecord,
    FloatArray,
    IntArray,
    Load,
    NodeTable,
    Plugin,
    PolicyError,
    Rows,
)

WHOLE = 1000
"""A whole GPU in thousandths, the unit of this module."""
_GPU = "nvidia.com/gpu"
_BEST = 100.0
_NOWHERE = 1e18


class TypicalPod(msgspec.Struct, frozen=True):
    """Expected pods: `frequency` is their relative number. Each requests `cpu` millicores and `milli` thousandths
    of each of `gpus` GPUs.
    """

    cpu: int
    gpus: int
    milli: int
    frequency: float


class Fragmentation:
    """Idle GPU capacity that the expected pods cannot use.

    F(m) of a class m is all idle capacity if the node cannot run m or m requests no GPU. Otherwise it is the idle
    capacity of GPUs with less than m requests of one. F is the mean over the classes by frequency.
    """

    def __init__(self, targets: list[TypicalPod]) -> None:
        total = sum(target.frequency for target in targets)
        self._cpu = np.array([target.cpu for target in targets], dtype=np.int64)
        self._gpus = np.array([target.gpus for target in targets], dtype=np.int64)
        self._part = np.array([target.frequency / total for target in targets])
        # Classes with equal requests of one GPU share most of the computation.
        self._milli, self._of = np.unique([target.milli for target in targets], return_inverse=True)

    def of(self, cpu: IntArray, cards: IntArray) -> FloatArray:
        """Return float64[rows]: F in thousandths of GPUs; `cpu` int64[rows] and `cards` int64[rows, cards] are idle
        amounts.
        """
        total = cards.sum(axis=1)
        enough = cards[:, None, :] >= self._milli[None, :, None]
        count = enough.sum(axis=2)[:, self._of]
        remainder = (total[:, None] - (enough * cards[:, None, :]).sum(axis=2))[:, self._of]
        runs = (count >= self._gpus) & (cpu[:, None] >= self._cpu) & (self._gpus > 0)
        result: FloatArray = (np.where(runs, remainder, total[:, None]) * self._part).sum(axis=1)
        return result


class Fgd(Plugin):
    """Score in whole points: weight x 100 x sigmoid(decrease of F by the pod, in GPUs).

    Like kube-scheduler's, scores are integers: differences below about a twentieth of a GPU do not count.
    `fgd.workload` lists the expected pods: `{cpu: 4, gpus: 1, share: 0.5, frequency: 12}`. Parts of GPUs are those
    of `deviceshare`; otherwise GPUs are whole (nvidia.com/gpu).
    """

    name = "fgd"
    arguments = ("fgd.weight", "fgd.workload")

    def __init__(self, arguments: Arguments) -> None:
        self._weight = arguments.integer("fgd.weight", 1, least=0)
        try:
            targets = _targets(arguments.sequence("fgd.workload"))
        except ValueError as error:
            raise PolicyError(f"{arguments.owner}: argument fgd.workload: {error}; {_ADVICE}") from None
        self._fragmentation = Fragmentation(targets) if targets else None
        if self._fragmentation is None:
            self.remarks = (f"fgd.workload: has no expected pods, so no node is scored; {_ADVICE}",)

    def score(self, pod_class: ClassRecord, load: Load) -> FloatArray | float:
        if self._fragmentation is None or not self._weight:
            return 0.0
        cpu = load.nodes.idle[CPU_COLUMN][load.rows].astype(np.int64)
        cards = idle_cards(load.nodes, load.rows)
        requested_cpu = dict(pod_class.spec.requests).get("cpu", 0)
        gpus, milli = gpus_of(pod_class.spec)
        points = np.zeros((len(cpu), load.depth))
        before = self._fragmentation.of(cpu, cards)
        for copy in range(load.depth):
            cpu = cpu - requested_cpu
            after, cards = self._placed(cpu, cards, gpus, milli)
            fall = np.clip((before - after) / WHOLE, -50.0, 50.0)
            points[:, copy] = np.floor(_BEST / (1.0 + np.exp(-fall))) * self._weight
            before = after
        return points[:, 0] if load.copies is None else points

    def _placed(self, cpu: IntArray, cards: IntArray, gpus: int, milli: int) -> tuple[FloatArray, IntArray]:
        """Return the fragmentation F of each node with one more pod on the GPUs where F is lowest, and the idle
        capacity after it."""
        assert self._fragmentation is not None
        rows, columns = cards.shape
        if not gpus or not columns:
            return self._fragmentation.of(cpu, cards), cards
        if gpus > 1 or milli == WHOLE:
            # Equally idle GPUs are interchangeable.
            chosen_cards = np.argsort(np.where(cards >= milli, cards, _NOWHERE), axis=1, kind="stable")[:, :gpus]
            remaining = cards.copy()
            np.put_along_axis(
                remaining, chosen_cards, np.take_along_axis(cards, chosen_cards, axis=1) - milli, axis=1
            )
            remaining = remaining.clip(0)
            return self._fragmentation.of(cpu, remaining), remaining
        choices = np.repeat(cards[:, None, :], columns, axis=1)
        column_numbers = np.arange(columns)
        choices[:, column_numbers, column_numbers] -= milli
        possible = cards >= milli
        flat = self._fragmentation.of(np.repeat(cpu, columns), choices.reshape(-1, columns).clip(0))
        ranked = np.where(possible, flat.reshape(rows, columns), _NOWHERE)
        best = ranked.argmin(axis=1)
        chosen: IntArray = choices[np.arange(rows), best].clip(0)
        return ranked[np.arange(rows), best], chosen


def idle_cards(nodes: NodeTable, rows: Rows) -> IntArray:
    """Return int64[rows, cards]: the idle capacity of each GPU of the node rows, in thousandths."""
    allocator = nodes.allocators[SHARED_DEVICES]
    assert isinstance(allocator, SharedDevices)
    shared = allocator.idle_parts(rows, WHOLE)
    column = nodes.space.find(_GPU)
    if column is None:
        return shared
    idle: npt.NDArray[np.int64] = nodes.idle[column][rows].astype(np.int64).clip(0)
    width = int(idle.max(initial=0))
    whole = np.where(np.arange(width) < idle[:, None], WHOLE, 0)
    return np.concatenate((shared, whole), axis=1)


def widest(nodes: NodeTable) -> int:
    """Return the largest number of GPUs of any node: the width of `idle_cards` of all rows."""
    allocator = nodes.allocators[SHARED_DEVICES]
    assert isinstance(allocator, SharedDevices)
    shared = allocator.idle_parts(np.zeros(0, dtype=np.intp), WHOLE).shape[1]
    column = nodes.space.find(_GPU)
    return int(shared) + (max(0, int(nodes.idle[column].max(initial=0))) if column is not None else 0)


def gpus_of(pod_class: PodClass) -> tuple[int, int]:
    """Return (number of GPUs, thousandths of each) that a pod requests."""
    need = pod_class.devices
    if need is not None and need.shares:
        share = need.shares[0]
        return share.count, share.percent * WHOLE // 100 if share.percent else share.memory
    return dict(pod_class.requests).get(_GPU, 0), WHOLE


_FIELDS = {"cpu": 0, "gpus": 0, "share": 1, "frequency": 1}
_ADVICE = "write a list such as [{cpu: 4, gpus: 1, share: 0.5, frequency: 12}]"


def _targets(entries: Sequence[object]) -> list[TypicalPod]:
    """Parse the list of expected pods. Raises ValueError for an invalid list."""
    targets = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, Mapping) or not set(entry) <= set(_FIELDS):
            raise ValueError(f"[{number}] has unknown keys; expected {', '.join(_FIELDS)}")
        values = {field: entry.get(field, usual) for field, usual in _FIELDS.items()}
        cpu, gpus, share, frequency = (_number(value, f"[{number}].{field}") for field, value in values.items())
        if gpus != int(gpus) or not 0 < share <= 1 or not frequency:
            raise ValueError(f"[{number}] needs whole gpus, a share above 0 and at most 1, a frequency above 0")
        targets.append(TypicalPod(round(cpu * WHOLE), int(gpus), round(share * WHOLE) if gpus else 0, frequency))
    return targets


def _number(value: object, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ValueError(f"{field} is {quoted(value)}; expected a number of at least 0")
    return float(value)
