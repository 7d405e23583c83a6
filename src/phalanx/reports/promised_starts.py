"""When somebody who waits starts: what the scheduler has promised in writing, or what a dry run forecasts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from phalanx.daemon.controllers.reservation_record import DATA_KEY, NAME, STARTS_KEY
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.kube.errors import ApiError
from phalanx.kube.own_objects import name_prefix
from phalanx.model.gang import GangKey
from phalanx.model.text.duration import format_moment
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.reservations.calibration import StartCalibration
from phalanx.scheduling.reservations.reservation import ToldStart
from phalanx.scheduling.reservations.stored import StoredReservation, StoredStarts, decode, decode_starts
from phalanx.scheduling.reservations.telling import basis_of, expected_start, postponement
from phalanx.scheduling.start_reservations.forecasts import UnitStart

#: Nobody can say how likely the forecast is.
NOT_CALIBRATED = "NotCalibrated"


class PromisedStart(msgspec.Struct, omit_defaults=True):
    """It starts no later than `no_later_than` ("" where nothing is kept for it); what it was told first is
    `promised`, and `postponements` say when and why that has moved back.

    `expected` is when half of those that were told the like have started, `expected_until` when 80 of 100 have.
    `planned` is where the plan has it, promised or not, as of `planned_at`; `basis` says by whose limits. Where
    nothing is expected, `reason` (a code) and `message` say why.
    """

    no_later_than: str = ""
    promised: str = ""
    told_at: str = ""
    postponements: list[str] = []
    expected: str = ""
    expected_until: str = ""
    planned: str = ""
    planned_at: str = ""
    basis: str = ""
    reason: str = ""
    message: str = ""


class StoredPlan(msgspec.Struct, frozen=True):
    """What the scheduler has written down; `warning` tells why it could not be read."""

    promises: list[StoredReservation] = []
    starts: StoredStarts = StoredStarts()
    warning: str = ""


async def read_plan(
    client: KubeClient, namespace: str, scheduler_names: Sequence[str] = ("phalanx",)
) -> StoredPlan:
    """Nothing where there is nothing or we may not know. `namespace` is that of the lease of the scheduler, whose
    names are given."""
    name = f"{name_prefix(scheduler_names)}-{NAME}"
    try:
        document = await client.get(CONFIG_MAPS.path(namespace, name))
    except ApiError as error:
        if error.status == 404:
            return StoredPlan()
        if error.status == 403:
            return StoredPlan(warning=f"not read: configmap {namespace}/{name}, promised starts: {error.message}")
        raise
    data = document.get("data") or {}
    return StoredPlan(decode(str(data.get(DATA_KEY, "")))[0], decode_starts(str(data.get(STARTS_KEY, "")))[0])


class StartTimes:
    """Of everybody who waits after a dry run at `now`."""

    def __init__(self, stored: StoredPlan, found: Sequence[UnitStart], now: float) -> None:
        self._promises = {each.key: each for each in stored.promises}
        self._now = int(now)
        self._forecasts = StartCalibration()
        self._forecasts.load(stored.starts.forecast)
        self.units = found

    def of(self, who: str | GangKey) -> PromisedStart | None:
        """Of a pod on its own (its uid) or a gang; None where it does not wait."""
        for each in self.units:
            key = each.unit.key
            if key == who or (not isinstance(key, str) and who in key):
                return self.start(each)
        return None

    def start(self, unit: UnitStart) -> PromisedStart:
        promise = self._promises.get(unit.unit.key)
        if promise is not None and _is_of(promise, unit.unit):
            return _promised(promise)
        forecast = unit.forecast
        if forecast.no_start is not None:
            return PromisedStart(reason=forecast.no_start.value, message=forecast.message)
        found = PromisedStart(
            planned=format_moment(forecast.start),
            planned_at=format_moment(self._now),
            basis=basis_of(forecast.gangs, forecast.endless),
        )
        expected, until = expected_start(
            self._forecasts, unit.queue, unit.pods, self._now, forecast.start, self._now
        )
        if expected:
            found.expected, found.expected_until = format_moment(expected), format_moment(until)
        else:
            found.reason, found.message = NOT_CALIBRATED, _not_calibrated(self._forecasts)
        return found


def _is_of(promise: StoredReservation, unit: QueuedUnit) -> bool:
    """Another object of the same name has no promise."""
    uids = {GangKey(namespace, name): uid for namespace, name, uid in promise.gangs}
    return all(gang.spec is not None and gang.spec.uid == uids.get(gang.key) for gang in unit.gangs)


def _promised(promise: StoredReservation) -> PromisedStart:
    words = promise.words or ToldStart(promise.made)
    return PromisedStart(
        format_moment(promise.told),
        format_moment(promise.promised),
        format_moment(promise.made),
        [postponement(slip) for slip in promise.slips],
        format_moment(words.expected) if words.expected else "",
        format_moment(words.until) if words.until else "",
        format_moment(promise.start),
        format_moment(words.at),
        basis_of(words.gangs, words.endless),
    )


def _not_calibrated(forecasts: StartCalibration) -> str:
    score = forecasts.score()
    if score.starts and not score.holds:
        part = round(100 * score.coverage[-1])
        return f"nobody can say how likely that is: of the last {score.starts} starts P90 covered {part} %"
    return f"nobody can say how likely that is: {len(forecasts)} starts seen are too few"
