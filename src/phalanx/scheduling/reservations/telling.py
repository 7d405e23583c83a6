"""What people are told about a start: when, how surely, and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.resource_space import BoolArray
from phalanx.cluster.state import ClusterState
from phalanx.model.text.duration import format_moment
from phalanx.scheduling.reservations.calibration import PERCENTS, StartCalibration
from phalanx.scheduling.reservations.future import FutureMatrix
from phalanx.scheduling.reservations.pod_ends import latest_end
from phalanx.scheduling.reservations.reservation import Slip, ToldStart
from phalanx.scheduling.reservations.window import Part, Window

_MINUTE = 60


def expected_start(
    calibration: StartCalibration, queue: str, pods: int, made: int, start: int, now: int, latest: int = 0
) -> tuple[int, int]:
    """When half, and 80 of 100, have started of those that were told as much at `made` and wait still, rounded up
    to minutes and no later than `latest` (0: nobody knows); (0, 0) where quantiles do not hold, or too few starts
    are known."""
    if not calibration.calibrated(queue):
        return 0, 0
    waits = calibration.quantiles(start - made, pods, max(0, now - made))
    if not waits:
        return 0, 0
    median, most = (_rounded(made + waits[PERCENTS.index(percent)], latest) for percent in (50, 80))
    return median, most


def _rounded(moment: int, latest: int) -> int:
    rounded = -(-moment // _MINUTE) * _MINUTE
    return min(rounded, latest) if latest else rounded


def basis(
    state: ClusterState,
    future: FutureMatrix,
    parts: Sequence[Part],
    window: Window,
    now: float,
    start_delay: int,
) -> tuple[int, int]:
    """(On the limits of how many gangs and pods on their own the window rests, how many pods without an end are on
    other nodes that its unit could use)."""
    limited: set[object] = set()
    for row in window.rows.tolist():
        for record in state.pods.on(row):
            if latest_end(record, now, start_delay) <= window.start:
                limited.add(_whose(record))
    elsewhere: BoolArray = np.zeros(len(future.endless), dtype=np.bool_)
    for part in parts:
        rows = part.rows[: len(elsewhere)]
        elsewhere[: len(rows)] |= rows
    elsewhere[window.rows] = False
    return len(limited), int(future.endless[elsewhere].sum())


def _whose(record: PodRecord) -> object:
    return record.gang.key if record.gang is not None else record.pod.uid


def start_sentence(start: int, words: ToldStart, slips: Sequence[Slip], spares: bool = False) -> str:
    """What the condition of somebody who has a promise says."""
    told = f"it starts no later than {format_moment(start)}, {basis_of(words.gangs, words.endless)}"
    if words.expected:
        told += f"; {_expected(words.expected, words.until)}"
    if spares:
        told += "; so soon that nobody is evicted for it"
    if words.at > 0:
        told += f"; planned {format_moment(words.at)}"
    return told + (f"; {postponement(slips[-1])}" if slips else "")


def forecast_sentence(expected: int, until: int) -> str:
    """The same of somebody who has a forecast only."""
    return f"no start is kept for it; {_expected(expected, until)}"


def _expected(expected: int, until: int) -> str:
    return f"expected {format_moment(expected)}, in 80 of 100 cases until {format_moment(until)}"


def basis_of(gangs: int, endless: int) -> str:
    told = "beside what runs"
    if gangs:
        told = "by the limits of a gang that runs" if gangs == 1 else f"by the limits of {gangs} gangs that run"
    if endless:
        told += f" ({endless} pod{'s' if endless != 1 else ''} without an end on other nodes)"
    return told


def postponement(slip: Slip) -> str:
    """Where a promised start has gone, and why."""
    whose = slip.cause.value + (f" ({slip.by})" if slip.by else "")
    if not slip.start:
        return f"its start at {format_moment(slip.former)} was lost at {format_moment(slip.when)}: {whose}"
    return f"moved at {format_moment(slip.when)} from {format_moment(slip.former)}: {whose}"
