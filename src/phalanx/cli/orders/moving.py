"""Move what waits to another queue: where its owner says so, and nowhere else."""

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

# Families whose PodGroups say their queue themselves.
_WITH_QUEUE = frozenset(
    {"scheduling.volcano.sh", "scheduling.incubator.k8s.io", "incubator.scheduling.k8s.io", "scheduling.sigs.dev"}
)


async def check_queue(client: KubeClient, queue: str) -> str:
    """Why nothing can be moved there, "" where it can or nobody may look."""
    try:
        queues = QueueCatalog((await client.list_all(QUEUES.path()))["items"])
    except ApiError:
        return ""
    refusals = refusals_of_queue(queues, queue, "PodGroup")
    if not refusals:
        return ""
    known = [each["metadata"]["name"] for each in queues.all() if each["metadata"]["name"] != "root"]
    advice = f" Known queues: {', '.join(known)}." if queues.get(queue) is None and known else ""
    return f"{' '.join(refusals)}{advice}"


async def move(client: KubeClient, target: Target, queue: str) -> str:
    """Says what happened. Raises click.ClickException."""
    if target.placed:
        raise click.ClickException(
            f"{target.title} has nodes for {target.placed} pods, which its queue is charged for; "
            "only what waits can be moved"
        )
    if target.volcano_job:
        raise click.ClickException(
            f"{target.title}: a Volcano Job keeps its queue (its webhook refuses another); "
            "cancel it and submit it again with --queue"
        )
    if kueue := target.note("labels", KUEUE_QUEUE):
        raise click.ClickException(f"{target.title} is in Kueue's queue {kueue}; move it there, by its label")
    kind = target.suspendable
    if kind is not None and target.note("labels", QUEUE_LABEL):
        assert target.document is not None
        if not is_suspended(kind, target.document):
            raise click.ClickException(
                f"{target.title} has had its turn in queue {target.note('labels', QUEUE_LABEL)}, and its pods wait "
                "for nodes; hold it first, then move it"
            )
        await client.patch(target.path, {"metadata": {"labels": {QUEUE_LABEL: queue}}}, PatchType.MERGE)
        return _moved(target, queue)
    groups = [(resource, group) for resource, group in target.groups if not _made(group)]
    for resource, group in groups:
        if owner := controller_of(group):
            raise click.ClickException(
                f"{target.title}: its PodGroup {name_of(group)} belongs to {owner.get('kind')}/{owner.get('name')}"
                ", whose controller writes its queue"
            )
        if resource.group in _WITH_QUEUE:
            await client.patch(
                resource.path(target.namespace, name_of(group)), {"spec": {"queue": queue}}, PatchType.MERGE
            )
            return _moved(target, queue)
    return await _annotate(client, target, queue)


async def _annotate(client: KubeClient, target: Target, queue: str) -> str:
    """What no group says is said by the pods; a pod that a controller makes follows its template."""
    for pod in target.members:
        if owner := controller_of(pod):
            raise click.ClickException(
                f"{target.title}: its pods are made by {owner.get('kind')}/{owner.get('name')}; write the "
                f"annotation {QUEUE_ANNOTATION} into the pod template there"
            )
    if not target.members:
        raise click.ClickException(f"{target.title} has no pods yet that could say its queue")
    patch = {"metadata": {"annotations": {QUEUE_ANNOTATION: queue}}}
    for pod in target.members:
        await client.patch(PODS.path(target.namespace, name_of(pod)), patch, PatchType.MERGE)
    return _moved(target, queue)


def _made(group: dict[str, object]) -> bool:
    """Whether the scheduler has made it from what its pods say: then they say the queue."""
    metadata = mapping(group.get("metadata"))
    return (
        not mapping(metadata.get("annotations"))
        .keys()
        .isdisjoint((GENERATED_FROM_PODS, FORMER_GENERATED_FROM_PODS))
    )


def _moved(target: Target, queue: str) -> str:
    return f"{target.title} moved to queue {queue}. Its place there: phalanx order -q {queue}"
