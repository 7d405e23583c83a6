"""Table of the `kubectl get` printers of built-in kinds."""

from __future__ import annotations

from phalanx_local.objects import metadata
from phalanx_local.printers import claims, cluster, rights, storage, workloads
from phalanx_local.printers.base import AGE, NAME, Printer, age
from phalanx_local.printers.pods import POD_PRINTER
from phalanx_local.registry.resources import Version

_PRINTERS = {
    "/pods": POD_PRINTER,
    "/nodes": cluster.NODE_PRINTER,
    "/namespaces": cluster.NAMESPACE_PRINTER,
    "/events": cluster.EVENT_PRINTER,
    "/services": cluster.SERVICE_PRINTER,
    "/configmaps": cluster.CONFIG_MAP_PRINTER,
    "/secrets": cluster.SECRET_PRINTER,
    "/serviceaccounts": cluster.SERVICE_ACCOUNT_PRINTER,
    "/persistentvolumeclaims": cluster.CLAIM_PRINTER,
    "/persistentvolumes": storage.VOLUME_PRINTER,
    "storage.k8s.io/storageclasses": storage.STORAGE_CLASS_PRINTER,
    "/replicationcontrollers": workloads.REPLICA_SET_PRINTER,
    "resource.k8s.io/resourceclaims": claims.RESOURCE_CLAIM_PRINTER,
    "resource.k8s.io/resourceslices": claims.RESOURCE_SLICE_PRINTER,
    "apps/deployments": workloads.DEPLOYMENT_PRINTER,
    "apps/replicasets": workloads.REPLICA_SET_PRINTER,
    "apps/daemonsets": workloads.DAEMON_SET_PRINTER,
    "apps/statefulsets": workloads.STATEFUL_SET_PRINTER,
    "batch/jobs": workloads.JOB_PRINTER,
    "batch/cronjobs": workloads.CRON_JOB_PRINTER,
    "policy/poddisruptionbudgets": workloads.BUDGET_PRINTER,
    "scheduling.k8s.io/priorityclasses": cluster.PRIORITY_CLASS_PRINTER,
    "scheduling.k8s.io/podgroups": workloads.POD_GROUP_PRINTER,
    "scheduling.k8s.io/compositepodgroups": workloads.POD_GROUP_PRINTER,
    "/resourcequotas": rights.QUOTA_PRINTER,
    "rbac.authorization.k8s.io/roles": rights.ROLE_PRINTER,
    "rbac.authorization.k8s.io/clusterroles": rights.ROLE_PRINTER,
    "rbac.authorization.k8s.io/rolebindings": rights.BINDING_PRINTER,
    "rbac.authorization.k8s.io/clusterrolebindings": rights.BINDING_PRINTER,
    "node.k8s.io/runtimeclasses": rights.RUNTIME_CLASS_PRINTER,
    "coordination.k8s.io/leases": cluster.LEASE_PRINTER,
    "apiextensions.k8s.io/customresourcedefinitions": cluster.DEFINITION_PRINTER,
    "apiregistration.k8s.io/apiservices": cluster.API_SERVICE_PRINTER,
}

_PLAIN = Printer((NAME, AGE), lambda obj, now: [metadata(obj).get("name", ""), age(obj, now)])


def built_in_printer(version: Version) -> Printer:
    """Return the `kubectl get` printer of a built-in kind; the default prints name and age."""
    return _PRINTERS.get(version.type.storage, _PLAIN)
