"""Admission rules for Job (batch.volcano.sh): defaults and refusals (docs/rules/jobs.md, B8).

The texts are upstream's fragments; joined with spaces they are the denial that users search for
(docs/webhook.md). Checks of signs and patterns that the CRD has as well are
repeated here for callers that validate without an API server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from phalanx.admission.context import DEFAULT, AdmissionContext
from phalanx.admission.fields import Json, PatchBuilder, mapping, sequence
from phalanx.admission.lifecycle_policies import refusals_of_policies
from phalanx.admission.names import label_faults, qualified_name_faults, service_name_faults, subdomain_faults
from phalanx.admission.pod_templates import container_request, faults_of_template
from phalanx.admission.queue_state import refusals_of_queue
from phalanx.jobs.plugins.mpi import MpiPlugin
from phalanx.jobs.plugins.plugin import JobPluginError
from phalanx.jobs.plugins.registry import NEEDED_PLUGINS, PLUGIN_NAMES, desired_objects
from phalanx.jobs.plugins.ssh import SshPlugin, generate_rsa_key
from phalanx.jobs.spec import DEFAULT_MAX_RETRY, Job, NetworkTopology, TaskSpec, VolumeSpec, read_job
from phalanx.jobs.task_graph import is_acyclic
from phalanx.model.text.quantity import QuantityError, read_quantity

_TOPOLOGY_POLICIES = ("", "none", "best-effort", "restricted", "single-numa-node")
_MANY_TIERS = "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously"
_AMOUNTS = frozenset({"requests", "limits", "capacity", "sizeLimit", "divisor"})


def defaults(document: Json, context: AdmissionContext) -> PatchBuilder:
    """Return Volcano's defaults of a new job."""
    built = PatchBuilder(document)
    spec = mapping(document.get("spec"))
    if not spec.get("queue"):
        built.add(("spec", "queue"), DEFAULT)
    if not spec.get("schedulerName"):
        built.add(("spec", "schedulerName"), context.scheduler_names[0])
    if not spec.get("maxRetry"):
        built.add(("spec", "maxRetry"), DEFAULT_MAX_RETRY)
    minimum = 0
    for index, task in enumerate(sequence(spec.get("tasks"))):
        if isinstance(task, dict):
            minimum += _default_task(built, index, task)
    if not spec.get("minAvailable") and sequence(spec.get("tasks")):
        built.add(("spec", "minAvailable"), minimum)
    plugins = mapping(spec.get("plugins"))
    for name in sorted(plugins):
        for needed in NEEDED_PLUGINS.get(name, ()):
            if needed not in mapping(mapping(built.document["spec"]).get("plugins")):
                built.add(("spec", "plugins", needed), [])
    return built


def preserve(built: PatchBuilder, old: Json) -> None:
    """Keep the claim names that the controller has added: a client-side apply replaces the list of volumes."""
    before = sequence(mapping(old.get("spec")).get("volumes"))
    after = sequence(mapping(built.document.get("spec")).get("volumes"))
    for index, (was, volume) in enumerate(zip(map(mapping, before), map(mapping, after), strict=False)):
        name = was.get("volumeClaimName")
        if name and "volumeClaimName" not in volume and "volumeClaim" in was and same(_unnamed(was), volume):
            built.add(("spec", "volumes", index, "volumeClaimName"), name)


def _default_task(built: PatchBuilder, index: int, task: Json) -> int:
    """Add the defaults of a task in a new job. Return the task's minimum of pods."""
    path = ("spec", "tasks", index)
    if not task.get("name"):
        built.add((*path, "name"), f"default{index}")
    pod = mapping(mapping(task.get("template")).get("spec"))
    if pod.get("hostNetwork") is True and not pod.get("dnsPolicy"):
        built.add((*path, "template", "spec", "dnsPolicy"), "ClusterFirstWithHostNet")
    if not task.get("maxRetry"):
        built.add((*path, "maxRetry"), DEFAULT_MAX_RETRY)
    try:
        minimum = msgspec.convert(task, TaskSpec).minimum
    except msgspec.ValidationError:
        return 0  # `validate` reports the invalid task
    if task.get("minAvailable") is None:
        built.add((*path, "minAvailable"), minimum)
    return minimum


def validate(document: Json, old: Json | None, context: AdmissionContext) -> list[str]:
    """Return the reasons to deny the creation of a job, or (with `old`) its change.

    An update with an unchanged spec is always allowed, so that jobs admitted under earlier rules can finish.
    """
    if old is not None and same(document.get("spec"), old.get("spec")):
        return []
    try:
        job, faults = read_job(document)
    except msgspec.ValidationError as error:
        return [f"the job cannot be read: {error};"]
    if faults:
        return [f"{fault};" for fault in faults]
    if old is not None:
        return _refusals_of_update(job, document, old)
    spec = job.spec
    refusals: list[str] = []
    if not spec.tasks:
        return ["No task specified in job spec"]
    if MpiPlugin.name in spec.plugins:
        try:
            master = MpiPlugin(spec.plugins[MpiPlugin.name]).master
        except JobPluginError as error:
            return [f"{error};"]
        if master not in [task.name for task in spec.named_tasks()]:
            return ["The specified mpi master task was not found"]
    refusals += _negative(job)
    refusals += _topology(spec.network_topology)
    seen: set[str] = set()
    for index, task in enumerate(spec.named_tasks()):
        if task.name in seen:
            refusals.append(f"duplicated task name {task.name};")
            break
        seen.add(task.name)
        refusals += _task(job, task, index)
    if faults_of_name := qualified_name_faults(job.metadata.name):
        refusals.append(f"create job with name {job.metadata.name} validate failed {_go_list(faults_of_name)};")
    else:
        refusals += _plugin_objects(job)
    if (spec.min_available or 0) > spec.replicas:
        refusals.append("job 'minAvailable' should not be greater than total replicas in tasks;")
    refusals += refusals_of_policies(spec.policies, "spec.policies")
    refusals += [f"unable to find job plugin: {name};" for name in sorted(spec.plugins) if name not in PLUGIN_NAMES]
    if SshPlugin.name in spec.plugins and not context.ssh:
        refusals.append(
            "job plugin ssh is disabled in this cluster, because it needs rights on Secrets; remove it, and the "
            "plugin mpi, which adds it;"
        )
    refusals += _volumes(spec.volumes)
    if context.queues is not None:
        refusals += refusals_of_queue(context.queues, spec.queue or DEFAULT, "job")
    if any(task.depends_on for task in spec.tasks) and not is_acyclic(
        {task.name: task.depends_on.name if task.depends_on else () for task in spec.named_tasks()}
    ):
        refusals.append("job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG);")
    return refusals


def _plugin_objects(job: Job) -> Iterator[str]:
    """Yield refusals of plugin objects whose names, derived from the job's name, the API server would reject."""
    try:
        objects = desired_objects(job, generate_rsa_key)
    except JobPluginError:
        return  # reported as an unknown plugin, or by the controller
    for made in objects:
        faults = service_name_faults(made.name) if made.kind == "Service" else subdomain_faults(made.name)
        if faults:
            yield (
                f"create {made.kind.lower()} with name {made.name} validate failed {_go_list(faults)}; "
                "rename the job, or remove the plugin that needs the object;"
            )


def _negative(job: Job) -> Iterator[str]:
    spec = job.spec
    fields: list[tuple[str, int | None, int]] = [
        ("minAvailable", spec.min_available, 0),
        ("maxRetry", spec.max_retry, 0),
        ("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished, 0),
        ("minSuccess", spec.min_success, 1),
    ]
    for index, task in enumerate(spec.tasks):
        fields.append((f"tasks[{index}].replicas", task.replicas, 0))
        fields.append((f"tasks[{index}].minAvailable", task.min_available, 0))
    for field, value, minimum in fields:
        if value is not None and value < minimum:
            yield f"spec.{field}: Invalid value: {value}: should be greater than or equal to {minimum};"


def _task(job: Job, task: TaskSpec, index: int) -> Iterator[str]:
    name = job.metadata.name
    if task.min_available is not None and task.min_available > task.replicas:
        yield f"'minAvailable' is greater than 'replicas' in task: {task.name}, job: {name};"
    for fault in label_faults(task.name):
        yield f'spec.tasks[{index}].name: Invalid value: "{task.name}": {fault};'
    yield from refusals_of_policies(task.policies, "spec.tasks.policies")
    last = f"{name}-{task.name}-{max(task.replicas - 1, 0)}"
    if faults := qualified_name_faults(last):
        yield f"create pod with name {last} validate failed {_go_list(faults)};"
    if wrong := faults_of_template(task.template):
        yield f"spec.task[{index}]." + " ".join(f"{fault}." for fault in wrong)
    elif task.topology_policy:
        yield from _numa(task, index)
    yield from _partitions(task, name)


def _numa(task: TaskSpec, index: int) -> Iterator[str]:
    if task.topology_policy not in _TOPOLOGY_POLICIES:
        yield (
            f'spec.tasks[{index}].topologyPolicy: Unsupported value: "{task.topology_policy}": supported values: '
            + ", ".join(f'"{policy}"' for policy in _TOPOLOGY_POLICIES[1:])
            + ";"
        )
    if task.topology_policy in ("", "none"):
        return
    pod = mapping(task.template.get("spec"))
    containers = [*sequence(pod.get("containers")), *sequence(pod.get("initContainers"))]
    for number, container in enumerate(containers):
        request = container_request(mapping(container), "cpu")
        if request is None or not request.nano or not request.is_integer:
            yield f"the cpu request isn't an integer in spec.task[{index}] container[{number}]."
            return


def _partitions(task: TaskSpec, job: str) -> Iterator[str]:
    policy = task.partition_policy
    if policy is None:
        return
    place = f"in task: {task.name}, job: {job};"
    if policy.total_partitions <= 0:
        yield f"'TotalPartitions' must be greater than 0 {place}"
    elif policy.partition_size <= 0:
        yield f"'PartitionSize' must be greater than 0 {place}"
    elif task.replicas != policy.total_partitions * policy.partition_size:
        yield f"'Replicas' are not equal to TotalPartitions*PartitionSize {place}"
    elif (
        task.min_available is not None
        and policy.min_partitions > 0
        and task.min_available != policy.min_partitions * policy.partition_size
    ):
        yield f"'MinAvailable' is not equal to MinPartitions*PartitionSize {place}"
    yield from _topology(policy.network_topology)


def _topology(topology: NetworkTopology | None) -> Iterator[str]:
    if topology is not None and topology.highest_tier_allowed is not None and topology.highest_tier_name:
        yield f"{_MANY_TIERS};"


def _volumes(volumes: Sequence[VolumeSpec]) -> list[str]:
    seen: set[str] = set()
    for volume in volumes:
        if not volume.mount_path:
            return ["mountPath is required;"]
        if volume.mount_path in seen:
            return [f"duplicated mountPath: {volume.mount_path};"]
        seen.add(volume.mount_path)
        if volume.volume_claim is None and not volume.volume_claim_name:
            return ["either VolumeClaim or VolumeClaimName must be specified;"]
        if not volume.volume_claim_name:
            continue
        if volume.volume_claim is not None:
            return [
                "conflict: If you want to use an existing PVC, just specify VolumeClaimName."
                "If you want to create a new PVC, you do not need to specify VolumeClaimName;"
            ]
        if faults := subdomain_faults(volume.volume_claim_name):
            return [f"invalid VolumeClaimName {volume.volume_claim_name} : {_go_list(faults)};"]
    return []


def _refusals_of_update(job: Job, document: Json, old: Json) -> list[str]:
    """Return the first reason to deny an update of a job, as upstream does."""
    spec = job.spec
    for task in spec.named_tasks():
        if task.replicas < 0:
            return [f"'replicas' must be >= 0 in task: {task.name}"]
        if task.min_available is not None and task.min_available < 0:
            return [f"'minAvailable' must be >= 0 in task: {task.name}"]
        if task.min_available is not None and task.min_available > task.replicas:
            return [f"'minAvailable' must be <= 'replicas' in task: {task.name}"]
        if wrong := list(_partitions(task, job.metadata.name)):
            return wrong
    minimum = spec.min_available or 0
    if minimum > spec.replicas:
        return ["job 'minAvailable' must not be greater than total replicas"]
    if minimum < 0:
        return ["job 'minAvailable' must be >= 0"]
    if wrong := list(_topology(spec.network_topology)):
        return wrong
    before = mapping(old.get("spec"))
    if len(sequence(before.get("tasks"))) != len(spec.tasks):
        return ["job updates may not add or remove tasks"]
    if not same(_fixed(mapping(document.get("spec"))), _fixed(before)):
        return [
            "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` "
            "and `PriorityClassName`"
        ]
    return []


def _fixed(spec: Json) -> dict[str, Any]:
    """Return the immutable part of a job's spec, without the claim names that the controller adds."""
    fixed = {key: value for key, value in spec.items() if key not in ("minAvailable", "priorityClassName")}
    fixed["tasks"] = [
        {key: value for key, value in mapping(task).items() if key not in ("replicas", "minAvailable")}
        for task in sequence(spec.get("tasks"))
    ]
    fixed["volumes"] = [_unnamed(mapping(volume)) for volume in sequence(spec.get("volumes"))]
    return fixed


def _unnamed(volume: Json) -> dict[str, Any]:
    """Return a volume without the name of a generated claim."""
    return {key: value for key, value in volume.items() if key != "volumeClaimName" or "volumeClaim" not in volume}


def same(left: object, right: object, key: str = "") -> bool:
    """Return whether two field values are equivalent. Null, empty and absent are equal, as clients write them,
    except for a selector, where empty means everything; 1 and 1000m of a resource are equal, too."""
    if left is None or right is None:
        if left is right:
            return True
        return not key.endswith("Selector") and _is_empty(left) and _is_empty(right)
    if isinstance(left, dict) and isinstance(right, dict):
        return all(
            same(left.get(field), right.get(field), key if key in _AMOUNTS else field) for field in left | right
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if key in _AMOUNTS:
        try:
            return read_quantity(left) == read_quantity(right)
        except QuantityError:
            pass
    return left == right and isinstance(left, bool) is isinstance(right, bool)


def _is_empty(value: object) -> bool:
    """Return whether a field value has no content, at any depth."""
    if isinstance(value, dict):
        return all(_is_empty(item) for item in value.values())
    return value is None or value == "" or value == []


def _go_list(items: Sequence[str]) -> str:
    return f"[{' '.join(items)}]"
