"""Move a waiting gang to another queue, by changing the object that names its queue."""

from __future__ import annotations

import click

from phalanx.admission.context import QueueCatalog
from phalanx.admission.queue_state import refusals_of_queue
from phalanx.dialects.gangs.declaration import QUEUE_ANNOTATION
from phalanx.dialects.gangs.generated_pod_groups import FORMER_GENERATED_FROM_PODS, GENERATED_FROM_PODS
from phalanx.jobs.suspended import QUEUE_LABEL, is_suspended
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError
from phalanx.orders.holding import KUEUE_QUEUE
from phalanx.orders.target import Target, name_of
from phalanx.reports.jobs.kinds import QUEUES
from phalanx.reports.jobs.read_documents import controller_of, mapping

# API groups whose PodGroups name their queue in spec.queue.
_WITH_QUEUE = frozenset(
    {"scheduling.volcano.sh", "scheduling.incubator.k8s.io", "incubator.scheduling.k8s.io", "scheduling.sigs.dev"}
)


async def check_queue(client: KubeClient, queue: str) -> str:
    """Return the reason why no gang can be moved to `queue`; "" if it is usable or queues are not readable."""
    try:
        queues = QueueCatalog((await client.list_all(QUEUES.path()))["items"])
    except ApiError:
        return ""
    refusals = refusals_of_queue(queues, queue, "PodGroup")
    if not refusals:
        return ""
    known = [
        listed_queue["metadata"]["name"]
        for listed_queue in queues.all()
        if listed_queue["metadata"]["name"] != "root"
    ]
    advice = f" Known queues: {', '.join(known)}." if queues.get(queue) is None and known else ""
    return f"{' '.join(refusals)}{advice}"


async def move(client: KubeClient, target: Target, queue: str) -> str:
    """Move the gang to `queue` and return a message for the user. Raises click.ClickException."""
    if target.placed:
        raise click.ClickException(
            f"{target.title} cannot be moved: {target.placed} of its pods have nodes; "
            "only waiting gangs can be moved"
        )
    if target.volcano_job:
        raise click.ClickException(
            f"{target.title} cannot be moved: the queue of a Volcano Job cannot be changed; "
            "cancel the job and submit it again with --queue"
        )
    if kueue := target.note("labels", KUEUE_QUEUE):
        raise click.ClickException(
            f"{target.title} is in Kueue's queue {kueue}; change its label {KUEUE_QUEUE} instead"
        )
    kind = target.suspendable
    if kind is not None and target.note("labels", QUEUE_LABEL):
        assert target.document is not None
        if not is_suspended(kind, target.document):
            raise click.ClickException(
                f"{target.title} is already admitted by queue {target.note('labels', QUEUE_LABEL)}; its pods wait "
                "for nodes; hold it first, then move it"
            )
        await client.patch(target.path, {"metadata": {"labels": {QUEUE_LABEL: queue}}}, PatchType.MERGE)
        return _moved(target, queue)
    groups = [(resource, group) for resource, group in target.groups if not _is_generated(group)]
    for resource, group in groups:
        if owner := controller_of(group):
            raise click.ClickException(
                f"{target.title} cannot be moved: the controller of {owner.get('kind')}/{owner.get('name')} writes "
                f"the queue of its PodGroup {name_of(group)}"
            )
        if resource.group in _WITH_QUEUE:
            await client.patch(
                resource.path(target.namespace, name_of(group)), {"spec": {"queue": queue}}, PatchType.MERGE
            )
            return _moved(target, queue)
    return await _annotate(client, target, queue)


async def _annotate(client: KubeClient, target: Target, queue: str) -> str:
    """Set the queue annotation on every pod of the gang. Raises click.ClickException if a pod has a controller."""
    for pod in target.members:
        if owner := controller_of(pod):
            raise click.ClickException(
                f"{target.title} cannot be moved: its pods have the controller "
                f"{owner.get('kind')}/{owner.get('name')}; set the annotation {QUEUE_ANNOTATION} in the template"
            )
    if not target.members:
        raise click.ClickException(
            f"{target.title} cannot be moved: the gang has no PodGroup or pods yet; retry once it has pods"
        )
    patch = {"metadata": {"annotations": {QUEUE_ANNOTATION: queue}}}
    for pod in target.members:
        await client.patch(PODS.path(target.namespace, name_of(pod)), patch, PatchType.MERGE)
    return _moved(target, queue)


def _is_generated(group: dict[str, object]) -> bool:
    """Return whether the scheduler generated this PodGroup from its pods; then the pods name the queue."""
    metadata = mapping(group.get("metadata"))
    return (
        not mapping(metadata.get("annotations"))
        .keys()
        .isdisjoint((GENERATED_FROM_PODS, FORMER_GENERATED_FROM_PODS))
    )


def _moved(target: Target, queue: str) -> str:
    return f"{target.title} moved to queue {queue}. To see its position: phalanx order -q {queue}"
