"""What is asked at which path (Volcano's), and which rules answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from phalanx.admission import cron_jobs, hyper_nodes, job_flows, jobs, pod_groups, pods, queues
from phalanx.admission.context import AdmissionContext
from phalanx.admission.fields import Json, PatchBuilder
from phalanx.admission.queue_rights import LABELLED

Defaults = Callable[[Json, AdmissionContext], PatchBuilder]
Validate = Callable[[Json, Json | None, AdmissionContext], list[str]]


def _nothing(document: Json, old: Json | None, context: AdmissionContext) -> list[str]:
    """What has no rules but who may use which queue."""
    return []


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """`resources` are written plural.group. `rights_only`: nothing but the right to use queues is asked there."""

    path: str
    resources: tuple[str, ...]
    version: str
    operations: tuple[str, ...]
    defaults: Defaults | None = None
    validate: Validate | None = None
    rights_only: bool = False
    namespaced: bool = True

    @property
    def subject(self) -> str:
        """The first part of the path: the plural, where there is one resource."""
        return self.path.split("/")[1]

    @property
    def names_queues(self) -> bool:
        return self.subject not in ("queues", "hypernodes")


_CREATE, _WRITE = ("CREATE",), ("CREATE", "UPDATE")
# Groups of PodGroups that have no rules but this one: kube-batch's.
_KUBE_BATCH = ("scheduling.incubator.k8s.io", "incubator.scheduling.k8s.io", "scheduling.sigs.dev")
_BATCH, _FLOW, _SCHEDULING = "batch.volcano.sh", "flow.volcano.sh", "scheduling.volcano.sh"


def _at(path: str, group: str, version: str, operations: tuple[str, ...], **rules: object) -> Route:
    resource = f"{path.split('/')[1]}.{group}".rstrip(".")
    return Route(path=path, resources=(resource,), version=version, operations=operations, **rules)  # type: ignore[arg-type]


#: Jobs of other controllers that wait suspended in a queue, what makes them, and kube-batch's groups.
QUEUE_RIGHTS: Final = Route(
    path="/queuerights/validate",
    resources=(*sorted(LABELLED), *(f"podgroups.{group}" for group in _KUBE_BATCH)),
    version="*",
    operations=_WRITE,
    validate=_nothing,
    rights_only=True,
)
#: What is held of a namespace's quota for groups; who asks is the API server, for namespaces with a label.
QUOTA_RESERVATIONS: Final = _at("/pods/quota", "", "v1", _CREATE, validate=_nothing)
ROUTES: Final = (
    _at("/jobs/mutate", _BATCH, "v1alpha1", _CREATE, defaults=jobs.defaults),
    _at("/podgroups/mutate", _SCHEDULING, "v1beta1", _CREATE, defaults=pod_groups.defaults),
    _at("/pods/mutate", "", "v1", _CREATE, defaults=pods.defaults),
    _at("/queues/mutate", _SCHEDULING, "v1beta1", _CREATE, defaults=queues.defaults, namespaced=False),
    _at("/jobs/validate", _BATCH, "v1alpha1", _WRITE, validate=jobs.validate),
    _at("/cronjobs/validate", _BATCH, "v1alpha1", _WRITE, validate=cron_jobs.validate),
    _at("/jobflows/validate", _FLOW, "v1alpha1", _WRITE, validate=job_flows.validate),
    _at("/jobtemplates/validate", _FLOW, "v1alpha1", _WRITE, validate=_nothing, rights_only=True),
    _at("/podgroups/validate", _SCHEDULING, "v1beta1", _WRITE, validate=pod_groups.validate),
    _at("/pods/validate", "", "v1", _WRITE, validate=pods.validate),
    _at(
        "/queues/validate",
        _SCHEDULING,
        "v1beta1",
        (*_WRITE, "DELETE"),
        validate=queues.validate,
        namespaced=False,
    ),
    _at(
        "/hypernodes/validate",
        "topology.volcano.sh",
        "v1alpha1",
        _WRITE,
        validate=hyper_nodes.validate,
        namespaced=False,
    ),
    QUEUE_RIGHTS,
    QUOTA_RESERVATIONS,
)
