"""`fgd`: place where GPUs are broken up least (Weng et al., "Beware of Fragmentation", USENIX ATC 2023)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from phalanx.cluster.devices.shared import SHARED_DEVICES, SharedDevices
from phalanx.model.pod import PodClass
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
"""A whole GPU in the thousandths in which everything here counts."""
_GPU = "nvidia.com/gpu"
_BEST = 100.0
_NOWHERE = 1e18


class TypicalPod(msgspec.Struct, frozen=True):
    """Pods that are expected: `frequency` of them for each of the others, with so many thousandths of a core and so
    many thousandths of each of `gpus` GPUs."""

    cpu: int
    gpus: int
    milli: int
    frequency: float


class Fragmentation:
    """How much of what is idle on nodes is of no use to the pods that are expected.

    F(m) of a class m is all that is idle if the node cannot run m or m asks for no GPU, else what is idle of those
    GPUs on which less is left than m asks of one. F is the mean over the classes by their frequency.
    """

    def __init__(self, targets: list[TypicalPod]) -> None:
        total = sum(target.frequency for target in targets)
        self._cpu = np.array([target.cpu for target in targets], dtype=np.int64)
        self._gpus = np.array([target.gpus for target in targets], dtype=np.int64)
        self._part = np.array([target.frequency / total for target in targets])
        # Classes that ask the same of one GPU share most of the work.
        self._milli, self._of = np.unique([target.milli for target in targets], return_inverse=True)

    def of(self, cpu: IntArray, cards: IntArray) -> FloatArray:
        """float64[rows]: F in thousandths of GPUs; `cpu` int64[rows] and `cards` int64[rows, cards] are idle."""
        total = cards.sum(axis=1)
        enough = cards[:, None, :] >= self._milli[None, :, None]
        count = enough.sum(axis=2)[:, self._of]
        rest = (total[:, None] - (enough * cards[:, None, :]).sum(axis=2))[:, self._of]
        runs = (count >= self._gpus) & (cpu[:, None] >= self._cpu) & (self._gpus > 0)
        result: FloatArray = (np.where(runs, rest, total[:, None]) * self._part).sum(axis=1)
        return result


class Fgd(Plugin):
    """weight x 100 x sigmoid(how much F falls by the pod, in GPUs), in whole points, as kube-scheduler counts:
    what differs by less than about a twentieth of a GPU is as good.

    `fgd.workload` lists what pods are expected: `{cpu: 4, gpus: 1, share: 0.5, frequency: 12}`. Parts of GPUs are
    those that `deviceshare` gives out; elsewhere GPUs are whole ones (nvidia.com/gpu).
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
            self.remarks = (f"fgd.workload: states no pods that are expected, so nothing is scored; {_ADVICE}",)

    def score(self, pod_class: ClassRecord, load: Load) -> FloatArray | float:
        if self._fragmentation is None or not self._weight:
            return 0.0
        cpu = load.nodes.idle[CPU_COLUMN][load.rows].astype(np.int64)
        cards = idle_cards(load.nodes, load.rows)
        asked_cpu = dict(pod_class.spec.requests).get("cpu", 0)
        gpus, milli = gpus_of(pod_class.spec)
        points = np.zeros((len(cpu), load.depth))
        before = self._fragmentation.of(cpu, cards)
        for copy in range(load.depth):
            cpu = cpu - asked_cpu
            after, cards = self._placed(cpu, cards, gpus, milli)
            fall = np.clip((before - after) / WHOLE, -50.0, 50.0)
            points[:, copy] = np.floor(_BEST / (1.0 + np.exp(-fall))) * self._weight
            before = after
        return points[:, 0] if load.copies is None else points

    def _placed(self, cpu: IntArray, cards: IntArray, gpus: int, milli: int) -> tuple[FloatArray, IntArray]:
        """F with one more copy, on the GPUs where it is lowest, and what is idle then."""
        assert self._fragmentation is not None
        rows, columns = cards.shape
        if not gpus or not columns:
            return self._fragmentation.of(cpu, cards), cards
        if gpus > 1 or milli == WHOLE:
            # Which of those that are equally idle makes no difference.
            taken = np.argsort(np.where(cards >= milli, cards, _NOWHERE), axis=1, kind="stable")[:, :gpus]
            left = cards.copy()
            np.put_along_axis(left, taken, np.take_along_axis(cards, taken, axis=1) - milli, axis=1)
            left = left.clip(0)
            return self._fragmentation.of(cpu, left), left
        choices = np.repeat(cards[:, None, :], columns, axis=1)
        each = np.arange(columns)
        choices[:, each, each] -= milli
        possible = cards >= milli
        flat = self._fragmentation.of(np.repeat(cpu, columns), choices.reshape(-1, columns).clip(0))
        ranked = np.where(possible, flat.reshape(rows, columns), _NOWHERE)
        best = ranked.argmin(axis=1)
        chosen: IntArray = choices[np.arange(rows), best].clip(0)
        return ranked[np.arange(rows), best], chosen


def idle_cards(nodes: NodeTable, rows: Rows) -> IntArray:
    """int64[rows, cards]: what is idle of each GPU, in thousandths."""
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
    """How many GPUs the node has that has most: as wide `idle_cards` of all are."""
    allocator = nodes.allocators[SHARED_DEVICES]
    assert isinstance(allocator, SharedDevices)
    shared = allocator.idle_parts(np.zeros(0, dtype=np.intp), WHOLE).shape[1]
    column = nodes.space.find(_GPU)
    return int(shared) + (max(0, int(nodes.idle[column].max(initial=0))) if column is not None else 0)


def gpus_of(pod_class: PodClass) -> tuple[int, int]:
    """(how many GPUs, thousandths of each) a pod asks for."""
    need = pod_class.devices
    if need is not None and need.shares:
        share = need.shares[0]
        return share.count, share.percent * WHOLE // 100 if share.percent else share.memory
    return dict(pod_class.requests).get(_GPU, 0), WHOLE


_FIELDS = {"cpu": 0, "gpus": 0, "share": 1, "frequency": 1}
_ADVICE = "write a list such as [{cpu: 4, gpus: 1, share: 0.5, frequency: 12}]"


def _targets(entries: Sequence[object]) -> list[TypicalPod]:
    """Raises ValueError for what is no such list."""
    found = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, Mapping) or not set(entry) <= set(_FIELDS):
            raise ValueError(f"[{number}] has other keys than {', '.join(_FIELDS)}")
        values = {field: entry.get(field, usual) for field, usual in _FIELDS.items()}
        cpu, gpus, share, frequency = (_number(value, f"[{number}].{field}") for field, value in values.items())
        if gpus != int(gpus) or not 0 < share <= 1 or not frequency:
            raise ValueError(f"[{number}] needs whole gpus, a share above 0 and at most 1, a frequency above 0")
        found.append(TypicalPod(round(cpu * WHOLE), int(gpus), round(share * WHOLE) if gpus else 0, frequency))
    return found


def _number(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ValueError(f"{what} is {value!r}, no number from 0")
    return float(value)
