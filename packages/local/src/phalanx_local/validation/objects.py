"""Validation by kind: the rules of an object on create and on update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from phalanx_local.validation import claims, cluster_objects, groups, pods, rbac, storage, workloads
from phalanx_local.validation.decoding import malformed, malformed_metadata
from phalanx_local.validation.errors import FieldError, type_invalid
from phalanx_local.validation.kinds import kind_type
from phalanx_local.validation.metadata import validate_metadata

Rule = Callable[[list[FieldError], dict[str, Any], dict[str, Any] | None, str], None]

RULES: Final[dict[tuple[str, str], Rule]] = {
    ("", "Binding"): pods.check_binding,
    ("", "ConfigMap"): cluster_objects.check_config_map,
    ("", "Namespace"): cluster_objects.check_namespace,
    ("", "Node"): cluster_objects.check_node,
    ("", "PersistentVolume"): storage.check_volume,
    ("", "PersistentVolumeClaim"): storage.check_claim,
    ("", "Pod"): pods.check_pod,
    ("", "ResourceQuota"): cluster_objects.check_quota,
    ("", "Secret"): cluster_objects.check_secret,
    ("", "Service"): cluster_objects.check_service,
    ("apps", "DaemonSet"): workloads.check_replica_set,
    ("apps", "Deployment"): workloads.check_deployment,
    ("apps", "ReplicaSet"): workloads.check_replica_set,
    ("apps", "StatefulSet"): workloads.check_stateful_set,
    ("autoscaling", "Scale"): workloads.check_scale,
    ("batch", "CronJob"): workloads.check_cron_job,
    ("batch", "Job"): workloads.check_job,
    ("coordination.k8s.io", "Lease"): cluster_objects.check_lease,
    ("policy", "PodDisruptionBudget"): workloads.check_budget,
    ("node.k8s.io", "RuntimeClass"): cluster_objects.check_runtime_class,
    (rbac.GROUP, "ClusterRole"): rbac.check_cluster_role,
    (rbac.GROUP, "ClusterRoleBinding"): rbac.check_cluster_role_binding,
    (rbac.GROUP, "Role"): rbac.check_role,
    (rbac.GROUP, "RoleBinding"): rbac.check_role_binding,
    ("resource.k8s.io", "DeviceClass"): claims.check_device_class,
    ("resource.k8s.io", "ResourceClaim"): claims.check_claim,
    ("resource.k8s.io", "ResourceClaimTemplate"): claims.check_claim_template,
    ("resource.k8s.io", "ResourceSlice"): claims.check_slice,
    ("scheduling.k8s.io", "CompositePodGroup"): groups.check_composite,
    ("scheduling.k8s.io", "PodGroup"): groups.check_pod_group,
    ("scheduling.k8s.io", "PriorityClass"): cluster_objects.check_priority_class,
    ("scheduling.k8s.io", "Workload"): groups.check_workload,
    ("storage.k8s.io", "CSINode"): storage.check_csi_node,
    ("storage.k8s.io", "CSIStorageCapacity"): storage.check_capacity,
    ("storage.k8s.io", "StorageClass"): storage.check_storage_class,
    ("storage.k8s.io", "VolumeAttachment"): storage.check_attachment,
}

#: Request bodies: they are not stored, so their metadata only names the target object.
_REQUESTS: Final = frozenset((("", "Binding"), ("policy", "Eviction"), ("autoscaling", "Scale")))


def validate(
    group: str, kind: str, obj: dict[str, Any], old: dict[str, Any] | None, subresource: str = ""
) -> list[FieldError]:
    """Return all errors of an object in document order; [] if it is valid.

    ``old`` is the stored object for an update, None for a create. ``group`` is "" for the core group. Of custom
    kinds only the metadata is checked. If a JSON type or a quantity is wrong, only those errors are returned (see
    `malformed`), because the other rules need a decodable object.
    """
    meta = obj.get("metadata")
    if (group, kind) in _REQUESTS:
        meta = meta or {}
    if not isinstance(meta, dict):
        return [type_invalid("metadata", meta, "must be an object")]
    builtin = kind_type(group, kind) is not None
    errors = malformed(group, kind, obj) if builtin else malformed_metadata(meta)
    if errors:
        return errors
    if (group, kind) not in _REQUESTS:
        old_meta = (old.get("metadata") or {}) if old is not None else None
        validate_metadata(errors, group, kind, meta, old_meta, builtin=builtin)
    rule = RULES.get((group, kind))
    if rule is not None:
        rule(errors, obj, old, subresource)
    return errors
