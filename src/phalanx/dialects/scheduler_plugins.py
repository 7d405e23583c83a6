"""PodGroup of scheduling.x-k8s.io, and of scheduling.sigs.k8s.io, its older name that Koordinator and ACK use."""

from __future__ import annotations

from phalanx.dialects.groupspec import Document, GroupReader, GroupResource, GroupSpec
from phalanx.model.gang import Dialect

GROUP = "scheduling.x-k8s.io"
OLD_GROUP = "scheduling.sigs.k8s.io"


def read_pod_group(resource: GroupResource, document: Document) -> GroupSpec:
    reader = GroupReader(resource, document)
    min_member = reader.min_member("minMember")
    min_resources = reader.resources("minResources")
    timeout = reader.timeout("scheduleTimeoutSeconds")
    return GroupSpec(
        ref=reader.ref,
        gang=reader.ref.name,
        family=Dialect.X_K8S if resource.group == GROUP else Dialect.SIGS,
        created=reader.created,
        min_member=min_member,
        min_resources=min_resources,
        timeout=timeout,
        extras=reader.extras,
        once_satisfied=reader.once_satisfied,
        problem=reader.problem,
        warnings=tuple(reader.warnings),
    )
