"""Metrics: accuracy of promised and forecast starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from phalanx.daemon.metrics.families import computed
from phalanx.scheduling.reservations.calibration import TOLD, Score, StartCalibration
from phalanx.scheduling.reservations.plan import ReservationPlan

#: Maximum number of queues with series of their own: tenants can create queues.
_MOST_QUEUES: Final = 50
#: Label of the series over all queues.
_ALL_QUEUES: Final = ""


class StartMetrics(Collector):
    """Accuracy of starts as metrics, computed per scrape; `plan` returns None without start reservations and on a
    standby."""

    def __init__(self, plan: Callable[[], ReservationPlan | None]) -> None:
        self._plan = plan

    def collect(self) -> Iterator[Metric]:
        coverage = computed("phalanx_start_forecast_coverage")
        loss = computed("phalanx_start_forecast_pinball_loss_seconds")
        promises = computed("phalanx_promised_starts_total")
        lateness = computed("phalanx_promised_start_lateness_seconds_total")
        earliest = computed("phalanx_earliest_promised_start_timestamp_seconds")
        plan = self._plan()
        if plan is not None:
            for basis, calibration in (
                ("promise", plan.starts.calibration),
                ("forecast", plan.starts.forecasts.calibration),
            ):
                for queue, score in _scores(calibration):
                    for percent, part in zip(TOLD, score.coverage, strict=True):
                        coverage.add_metric([basis, queue, f"0.{percent // 10}"], part)
                    loss.add_metric([basis, queue], score.pinball_loss)
            for outcome, count in sorted(plan.starts.outcomes.counts.items()):
                promises.add_metric([outcome], count)
            for cause, seconds in sorted(plan.starts.outcomes.lateness.items()):
                lateness.add_metric([cause], seconds)
            if (told := min((reservation.told for reservation in plan.all()), default=None)) is not None:
                earliest.add_metric([], told)
        yield from (coverage, loss, promises, lateness, earliest)


def _scores(calibration: StartCalibration) -> Iterator[tuple[str, Score]]:
    for queue in (None, *calibration.queues[:_MOST_QUEUES]):
        score = calibration.score(queue)
        if score.starts:
            yield _ALL_QUEUES if queue is None else queue, score
