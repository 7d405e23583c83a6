"""Registry of parts: the one list of the parts of the scheduler process, each with its hooks."""

from __future__ import annotations

import time

from phalanx.daemon.assembly.assemble import Assembly
from phalanx.daemon.extender_calls import connect_extenders
from phalanx.daemon.service_part import Runs, ServicePart
from phalanx.dialects.core import PodObject
from phalanx.scheduling.features.run_time_limits import KILL
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.quota.usage_since_arrival import charge_since_arrival
from phalanx.status.warnings.ignored_protection import ignored_protection
from phalanx.status.warnings.ignored_quota_labels import ignored_quota_labels


def service_parts(built: Assembly) -> list[ServicePart]:
    """Return all parts of the process, in the order in which each hook calls them.

    A comment states each order that matters, and tests/daemon/test_service_parts.py checks it.
    """
    core, status, execution, observation = built.core, built.status, built.execution, built.observation
    stored, controllers, hooks = built.stored, built.controllers, _Hooks(built)
    self_check = ServicePart("self-check", Runs.LEADING, run=controllers.ledger_check.run, vital=True)
    return [
        ServicePart("event recorder", Runs.ALWAYS, run=built.writes.recorder.run),
        ServicePart("policy file", Runs.ALWAYS, run=core.policy_file.run),
        ServicePart("endpoint", Runs.ALWAYS, run=hooks.serve, vital=True),
        ServicePart("verdict publisher", Runs.ALWAYS, run=status.verdict_publisher.run),
        ServicePart("observer", Runs.STANDBY, run=observation.observer.run, vital=True),
        # A policy is in force in the scheduler before pods are read again under its run-time rule.
        ServicePart("scheduler", policy_changed=hooks.use_policy),
        ServicePart("run-time limits", policy_changed=hooks.enforce_run_times),
        # Loaded in this order. Nominations first: they are as the earlier leader left them only before the API
        # server is asked for the rest. Usage next: promised starts are restored under budgets that count it.
        # Defragmentation after them: it may evict once its own budget is loaded.
        ServicePart("nominations", load=hooks.load_nominations),
        ServicePart(
            "usage record", Runs.LEADING, run=stored.usage.run, load=hooks.load_usage, save=hooks.save_usage
        ),
        ServicePart("promised starts", load=hooks.load_promises, save=lambda last: stored.reservations.save()),
        ServicePart(
            "defragmentation", load=stored.defragmentation.load, save=lambda last: stored.defragmentation.save()
        ),
        ServicePart(
            "recent history",
            load=stored.recent_history.load,
            save=lambda last: stored.recent_history.save(),
        ),
        ServicePart(
            "policy record",
            Runs.AFTER_FIRST_PLAN,
            run=hooks.write_policy,
            load=stored.policy.load,
            check=stored.policy.save,
        ),
        ServicePart(
            "kubelet rejections",
            pod_seen=controllers.kubelet_rejections.pod_seen,
            pod_gone=controllers.kubelet_rejections.pod_gone,
            warnings=controllers.kubelet_rejections.report,
            bind_warnings=controllers.kubelet_rejections.pods_bound,
        ),
        # The executor before telemetry: reports of the executor about a pod precede the last count of that pod.
        ServicePart(
            "executor",
            pod_seen=execution.executor.pod_seen,
            pod_gone=execution.executor.pod_gone,
            drain=execution.preparations.stop,
        ),
        ServicePart("telemetry", pod_seen=hooks.count_pod, pod_gone=core.telemetry.pod_gone),
        ServicePart(
            "hub lease",
            Runs.LEADING,
            run=execution.hub_lease.run,
            pod_seen=execution.hub_lease.pod_seen,
            pod_gone=execution.hub_lease.pod_gone,
        ),
        ServicePart("node loads", Runs.LEADING, run=observation.node_loads.run),
        ServicePart(
            "plan publisher",
            pod_gone=status.plan_publisher.pod_gone,
            gang_touched=status.plan_publisher.gang_touched,
        ),
        ServicePart("group statuses", verdict_published=status.groups.touch),
        ServicePart(
            "composite statuses", gang_touched=status.composites.touch, verdict_published=status.composites.touch
        ),
        ServicePart("metrics of gangs", verdict_published=observation.inspection.verdict_published),
        # Groups before accounts, which count groups by their phase.
        ServicePart(
            "account statuses",
            Runs.AFTER_FIRST_PLAN,
            run=hooks.publish_all,
            gang_touched=status.accounts.gang_touched,
        ),
        ServicePart("lost members", gang_touched=status.lost_members.touch),
        ServicePart("objects", warnings=core.intake.drain_warnings),
        ServicePart("network faults", warnings=status.network_faults.new_warnings),
        ServicePart(
            "composite priorities",
            gang_touched=status.composite_priorities.touch,
            warnings=status.composite_priorities.new_warnings,
        ),
        ServicePart("distrusted devices", warnings=status.distrusted_devices.new_warnings),
        ServicePart(
            "ignored protection",
            bind_warnings=lambda binds: ignored_protection(core.state, binds, core.policy.self_protection),
        ),
        ServicePart("ignored quota labels", bind_warnings=lambda binds: ignored_quota_labels(core.state, binds)),
        ServicePart("partial gangs", check=lambda: controllers.partial_gangs.check(core.policy.partial_gang)),
        ServicePart("run times", check=lambda: controllers.run_time_exceeded.check(core.policy.exceeded_run_times)),
        ServicePart("maintenance", check=controllers.maintenance_windows.check),
        ServicePart("advance reservations", check=controllers.advance_reservations.check),
        ServicePart(
            "leftover evictions",
            pod_seen=controllers.leftover_evictions.pod_seen,
            pod_gone=controllers.leftover_evictions.pod_gone,
            check=controllers.leftover_evictions.check,
        ),
        ServicePart("built-in queues", check=controllers.builtin_queues.check),
        ServicePart(
            "PodGroups for labels",
            pod_seen=controllers.generated_pod_groups.pod_seen,
            pod_gone=controllers.generated_pod_groups.pod_gone,
            gang_touched=controllers.generated_pod_groups.touch,
            check=controllers.generated_pod_groups.check,
        ),
        ServicePart(
            "queue allocation gates",
            pod_seen=controllers.queue_gates.pod_seen,
            pod_gone=controllers.queue_gates.pod_gone,
            check=controllers.queue_gates.check,
        ),
        ServicePart(
            "withdrawn pods",
            pod_gone=controllers.withdrawn_pods.pod_gone,
            check=controllers.withdrawn_pods.check,
        ),
        *([self_check] if core.options.self_check else []),
    ]


class _Hooks:
    """Hooks of parts that consist of more than one call."""

    def __init__(self, built: Assembly) -> None:
        self._built = built
        self._core = built.core
        self._stored = built.stored

    async def serve(self) -> None:
        await self._core.telemetry.serve(self._built.observation.inspection)

    def use_policy(self, policy: Policy) -> None:
        connect_extenders(policy)
        self._core.scheduler.use(policy)

    def enforce_run_times(self, policy: Policy) -> None:
        for event in self._core.intake.enforce_run_times(policy.exceeded_run_times == KILL):
            self._built.observation.observer.apply_event(event)

    async def load_nominations(self) -> None:
        self._core.state.pods.load_nominations()

    async def load_promises(self) -> None:
        self._stored.start_reservations.load(*await self._stored.reservations.load())

    async def load_usage(self) -> None:
        await self._stored.usage.load()
        charge_since_arrival(self._core.state, self._core.scheduler.history, time.time())

    def save_usage(self, last: bool) -> None:
        """Save the usage when the process ends or a budget is spent; the record's task saves it in intervals."""
        if last:
            self._stored.usage.save(last=True)
        else:
            self._stored.usage.save_spent()

    async def write_policy(self) -> None:
        self._stored.policy.save()

    def count_pod(self, pod: PodObject) -> None:
        if not pod.spec.node_name and pod.spec.scheduler_name in self._core.options.scheduler_names:
            self._core.telemetry.pod_seen(pod)

    async def publish_all(self) -> None:
        """Compare the status of every PodGroup, then of every queue and quota, with the state."""
        await self._built.observation.observer.publish_gangs()
        await self._built.status.accounts.run()
