"""List of all controllers of the process."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.controllers.controller import ControllerContext, Reconciler
from phalanx.controllers.cron_jobs import CronJobController
from phalanx.controllers.flows.flow_controller import JobFlowController
from phalanx.controllers.flows.template_controller import JobTemplateController
from phalanx.controllers.groups.quota_reservations import QuotaReservationController
from phalanx.controllers.groups.restart_controller import GroupRestartController
from phalanx.controllers.groups.suspended_jobs import SuspendedJobController
from phalanx.controllers.jobs.job_controller import VolcanoJobController
from phalanx.controllers.queue_states import QueueStates


def all_controllers(context: ControllerContext) -> Sequence[Reconciler]:
    """Return one controller of each type, in the order in which they receive changes of objects."""
    return (
        VolcanoJobController(context),
        CronJobController(context),
        JobFlowController(context),
        JobTemplateController(context),
        GroupRestartController(context),
        SuspendedJobController(context),
        QuotaReservationController(context),
        QueueStates(context),
    )
