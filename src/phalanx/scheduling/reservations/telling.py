"""Published texts about starts: the time, its probability, and its basis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.resource_space import BoolArray
from phalanx.cluster.state import ClusterState
from phalanx.model.promise_records import Slip, ToldStart
from phalanx.model.promise_texts import basis_of, postponement
from phalanx.model.text.duration import format_moment
from phalanx.scheduling.reservations.calibration import PERCENTS, StartCalibration
from phalanx.scheduling.reservations.future import FutureMatrix
from phalanx.scheduling.reservations.pod_ends import latest_end
from phalanx.scheduling.reservations.window import Part, Window

_MINUTE = 60


def expected_start(
    calibration: StartCalibration, queue: str, pods: int, made: int, start: int, now: int, latest: int = 0
) -> tuple[int, int]:
    """Return the times by which 50 and 80 of 100 comparable units have started; (0, 0) without calibrated
    quantiles.

    Comparable units had the same forecast at `made` and were still waiting at `now`. Times are rounded up to
    minutes, to at most `latest` (0: no bound).
    """
    if not calibration.calibrated(queue):
        return 0, 0
    waits = calibration.quantiles(start - made, pods, max(0, now - made))
    if not waits:
        return 0, 0
    median, upper = (_rounded(made + waits[PERCENTS.index(percent)], latest) for percent in (50, 80))
    return median, upper


def _rounded(moment: int, latest: int) -> int:
    rounded = -(-moment // _MINUTE) * _MINUTE
    return min(rounded, latest) if latest else rounded


def basis(
    state: ClusterState,
    future: FutureMatrix,
    parts: Sequence[Part],
    window: Window,
    now: int,
    start_delay: int,
) -> tuple[int, int]:
    """Return (number of gangs and single pods on whose run-time limits the window rests, number of pods without a
    known end on other usable nodes)."""
    owners: set[object] = set()
    for row in window.rows.tolist():
        for record in state.pods.on(row):
            if latest_end(record, now, start_delay) <= window.start:
                owners.add(_owner_of(record))
    elsewhere: BoolArray = np.zeros(len(future.pod_ends.endless), dtype=np.bool_)
    for part in parts:
        rows = part.rows[: len(elsewhere)]
        elsewhere[: len(rows)] |= rows
    elsewhere[window.rows] = False
    return len(owners), int(future.pod_ends.endless[elsewhere].sum())


def _owner_of(record: PodRecord) -> object:
    return record.gang.key if record.gang is not None else record.pod.uid


def start_sentence(start: int, words: ToldStart, slips: Sequence[Slip], now: int, spares: bool = False) -> str:
    """Return the condition text of a unit with a promised start."""
    if start < now:
        sentence = f"its promised start at {format_moment(start)} has passed"
    else:
        sentence = f"it starts no later than {format_moment(start)}, {basis_of(words.gangs, words.endless)}"
    if words.expected > now:
        sentence += f"; {_expected(words.expected, words.until)}"
    if spares:
        sentence += "; so soon that no pod is evicted for it"
    if words.at > 0:
        sentence += f"; planned {format_moment(words.at)}"
    return sentence + (f"; {postponement(slips[-1])}" if slips else "")


def forecast_sentence(expected: int, until: int) -> str:
    """Return the condition text of a unit that only has a forecast."""
    return f"no start is promised; {_expected(expected, until)}"


def _expected(expected: int, until: int) -> str:
    return f"expected {format_moment(expected)}, in 80 of 100 cases until {format_moment(until)}"
