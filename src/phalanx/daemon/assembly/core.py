"""Builder of the core of the process, which every other builder needs."""

from __future__ import annotations

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.daemon.distrusted_annotations import DistrustedAnnotations
from phalanx.daemon.extender_calls import connect_extenders
from phalanx.daemon.lifecycle import Lifecycle
from phalanx.daemon.policy_file import PolicyFile
from phalanx.daemon.scheduler_options import SchedulerOptions
from phalanx.daemon.service_part import ServiceParts
from phalanx.daemon.telemetry import Telemetry
from phalanx.dialects.intake import Intake
from phalanx.dialects.registry import installed_dialects
from phalanx.dialects.signatures import Signer
from phalanx.kube.failures import Failures
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.scheduler import Scheduler


class Core(msgspec.Struct, frozen=True, eq=False):
    """Options, policy, cluster state and scheduler of the process, without any I/O."""

    options: SchedulerOptions
    lifecycle: Lifecycle
    telemetry: Telemetry
    failures: Failures
    #: The hooks of all parts. They call nothing before the registry is in use.
    parts: ServiceParts
    policy_file: PolicyFile
    state: ClusterState
    scheduler: Scheduler
    signer: Signer
    intake: Intake

    @property
    def policy(self) -> Policy:
        """Scheduling policy in force."""
        return self.policy_file.policy


def build_core(options: SchedulerOptions, telemetry: Telemetry) -> Core:
    """Build the core of the process. Raises PolicyError for a policy that cannot be used."""
    lifecycle = Lifecycle()
    failures = Failures(telemetry.failed)
    parts = ServiceParts(failures)

    def policy_changed(policy: Policy) -> None:
        parts.policy_changed(policy)
        lifecycle.wake.set()

    policy_file = PolicyFile(options.config, policy_changed)
    connect_extenders(policy_file.policy)
    state = ClusterState(options.scheduler_names)
    scheduler = Scheduler(state, policy_file.policy)
    signer = Signer()
    intake = Intake(
        options.scheduler_names,
        policy_file.dialects,
        signer,
        DistrustedAnnotations(telemetry.distrusted).record,
        installed_dialects(),
    )
    telemetry.priority_class_of = intake.group_objects.priority_class_of
    scheduler.cycle_history.searches = telemetry.eviction_searches
    return Core(options, lifecycle, telemetry, failures, parts, policy_file, state, scheduler, signer, intake)
