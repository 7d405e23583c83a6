"""Paths of the webhook, which are those of Volcano's, and the rules of each path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from phalanx.admission import cron_jobs, hyper_nodes, job_flows, jobs, pod_groups, pods, queues
from phalanx.admission.context import AdmissionContext
from phalanx.admission.fields import Json, PatchBuilder
from phalanx.admission.queue_rights import LABELLED

Defaults = Callable[[Json, AdmissionContext], PatchBuilder]
Preserve = Callable[[PatchBuilder, Json], None]
Validate = Callable[[Json, Json | None, AdmissionContext], list[str]]


def _no_refusals(document: Json, old: Json | None, context: AdmissionContext) -> list[str]:
    """Return no refusals, for kinds without an admission rule beyond the right to use a queue."""
    return []


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Path of the webhook with its rules. `resources` are plural.group. `rights_only`: only the right to use queues
    is checked.
    `preserve` adds the fields of a controller that an update has dropped, from the old object.
    """

    path: str
    resources: tuple[str, ...]
    version: str
    operations: tuple[str, ...]
    defaults: Defaults | None = None
    preserve: Preserve | None = None
    validate: Validate | None = None
    rights_only: bool = False
    namespaced: bool = True

    @property
    def subject(self) -> str:
        """First part of the path: the plural name, if the path serves one resource."""
        return self.path.split("/")[1]

    @property
    def names_queues(self) -> bool:
        return self.subject not in ("queues", "hypernodes")


_CREATE, _WRITE = ("CREATE",), ("CREATE", "UPDATE")
# API groups of kube-batch's PodGroups, without a rule beyond the right to use a queue.
_KUBE_BATCH = ("scheduling.incubator.k8s.io", "incubator.scheduling.k8s.io", "scheduling.sigs.dev")
_BATCH, _FLOW, _SCHEDULING = "batch.volcano.sh", "flow.volcano.sh", "scheduling.volcano.sh"


def _route(path: str, group: str, version: str, operations: tuple[str, ...], **rules: object) -> Route:
    resource = f"{path.split('/')[1]}.{group}".rstrip(".")
    return Route(path=path, resources=(resource,), version=version, operations=operations, **rules)  # type: ignore[arg-type]


#: Jobs of other controllers that wait suspended in a queue, the kinds that create them, and kube-batch's groups.
QUEUE_RIGHTS: Final = Route(
    path="/queuerights/validate",
    resources=(*sorted(LABELLED), *(f"podgroups.{group}" for group in _KUBE_BATCH)),
    version="*",
    operations=_WRITE,
    validate=_no_refusals,
    rights_only=True,
)
#: Check of quota that is reserved for groups; the API server calls it only for namespaces with a label.
QUOTA_RESERVATIONS: Final = _route("/pods/quota", "", "v1", _CREATE, validate=_no_refusals)
ROUTES: Final = (
    _route("/jobs/mutate", _BATCH, "v1alpha1", _WRITE, defaults=jobs.defaults, preserve=jobs.preserve),
    _route("/podgroups/mutate", _SCHEDULING, "v1beta1", _CREATE, defaults=pod_groups.defaults),
    _route("/pods/mutate", "", "v1", _CREATE, defaults=pods.defaults),
    _route("/queues/mutate", _SCHEDULING, "v1beta1", _WRITE, defaults=queues.defaults, namespaced=False),
    _route("/jobs/validate", _BATCH, "v1alpha1", _WRITE, validate=jobs.validate),
    _route("/cronjobs/validate", _BATCH, "v1alpha1", _WRITE, validate=cron_jobs.validate),
    _route("/jobflows/validate", _FLOW, "v1alpha1", _WRITE, validate=job_flows.validate),
    _route("/jobtemplates/validate", _FLOW, "v1alpha1", _WRITE, validate=_no_refusals, rights_only=True),
    _route("/podgroups/validate", _SCHEDULING, "v1beta1", _WRITE, validate=pod_groups.validate),
    _route("/pods/validate", "", "v1", _WRITE, validate=pods.validate),
    _route(
        "/queues/validate",
        _SCHEDULING,
        "v1beta1",
        (*_WRITE, "DELETE"),
        validate=queues.validate,
        namespaced=False,
    ),
    _route(
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
