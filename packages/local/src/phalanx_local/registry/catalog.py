"""Built-in resource types: one line of the catalog per resource, as kube-apiserver 1.36 serves them."""

from __future__ import annotations

from typing import NamedTuple

from phalanx_local.registry.resources import VERBS, Registry, ResourceType, ScalePaths, Version
from phalanx_local.strategies.base import RestStrategy, SpecStrategy
from phalanx_local.strategies.claims import (
    ResourceClaimStrategy,
    ResourceClaimTemplateStrategy,
    ResourceSliceStrategy,
)
from phalanx_local.strategies.events import (
    EVENTS_V1_LABELS,
    EventStrategy,
    check_new_event,
    from_events_v1,
    to_events_v1,
)
from phalanx_local.strategies.groups import (
    CompositePodGroupStrategy,
    PodGroupStrategy,
    WorkloadTemplateStrategy,
)
from phalanx_local.strategies.namespaces import NamespaceStrategy
from phalanx_local.strategies.nodes import NodeStrategy
from phalanx_local.strategies.plain import (
    AttachmentStrategy,
    DisruptionBudgetStrategy,
    DriverStrategy,
    LeaseStrategy,
    QuotaStrategy,
    SecretStrategy,
    ServiceStrategy,
    TemplateStrategy,
    VolumeClaimStrategy,
    VolumeClassStrategy,
    VolumeStrategy,
)
from phalanx_local.strategies.pods import PodStrategy
from phalanx_local.strategies.policies import PolicyBindingStrategy, PolicyStrategy
from phalanx_local.strategies.priority import PriorityClassStrategy
from phalanx_local.strategies.rbac import BindingStrategy, RoleStrategy
from phalanx_local.strategies.service_accounts import ServiceAccountStrategy
from phalanx_local.strategies.webhooks import WebhookStrategy
from phalanx_local.strategies.workloads import (
    CronJobStrategy,
    DaemonSetStrategy,
    DeploymentStrategy,
    JobStrategy,
    ReplicaSetStrategy,
    ReplicationControllerStrategy,
    StatefulSetStrategy,
)


class Row(NamedTuple):
    """Catalog line of one resource; `extra` are subresources, a leading `-` on the plural marks a cluster-scoped
    resource."""

    group: str
    version: str
    plural: str
    kind: str
    strategy: RestStrategy
    extra: str = ""
    short: str = ""
    categories: str = ""
    verbs: tuple[str, ...] = VERBS


_REPLICAS = ScalePaths()
_NO_COLLECTION = tuple(verb for verb in VERBS if verb != "deletecollection")


def _core(*, group_field: str, taint_nodes: bool, protect_volumes: bool) -> list[Row]:
    plain = RestStrategy()
    return [
        Row("", "v1", "-namespaces", "Namespace", NamespaceStrategy(), "status finalize", "ns", "", _NO_COLLECTION),
        Row("", "v1", "-nodes", "Node", NodeStrategy(taints=taint_nodes), "status proxy", "no"),
        Row(
            "",
            "v1",
            "pods",
            "Pod",
            PodStrategy(group_field=group_field),
            "status binding eviction log ephemeralcontainers resize attach exec portforward proxy",
            "po",
            "all",
        ),
        Row("", "v1", "configmaps", "ConfigMap", plain, "", "cm"),
        Row("", "v1", "secrets", "Secret", SecretStrategy()),
        Row("", "v1", "services", "Service", ServiceStrategy(), "status proxy", "svc", "all"),
        Row("", "v1", "endpoints", "Endpoints", plain, "", "ep"),
        Row("", "v1", "events", "Event", EventStrategy(), "", "ev"),
        Row("", "v1", "serviceaccounts", "ServiceAccount", ServiceAccountStrategy(), "token", "sa"),
        Row(
            "",
            "v1",
            "-persistentvolumes",
            "PersistentVolume",
            VolumeStrategy(protect=protect_volumes),
            "status",
            "pv",
        ),
        Row(
            "",
            "v1",
            "persistentvolumeclaims",
            "PersistentVolumeClaim",
            VolumeClaimStrategy(protect=protect_volumes),
            "status",
            "pvc",
        ),
        Row(
            "",
            "v1",
            "replicationcontrollers",
            "ReplicationController",
            ReplicationControllerStrategy(),
            "status scale",
            "rc",
            "all",
        ),
        Row("", "v1", "resourcequotas", "ResourceQuota", QuotaStrategy(), "status", "quota"),
        Row("", "v1", "limitranges", "LimitRange", plain, "", "limits"),
        Row("", "v1", "podtemplates", "PodTemplate", TemplateStrategy()),
        Row("", "v1", "bindings", "Binding", plain, verbs=("create",)),
    ]


def _named_groups() -> list[Row]:
    plain, spec = RestStrategy(), SpecStrategy()
    return [
        Row("apps", "v1", "deployments", "Deployment", DeploymentStrategy(), "status scale", "deploy", "all"),
        Row("apps", "v1", "replicasets", "ReplicaSet", ReplicaSetStrategy(), "status scale", "rs", "all"),
        Row("apps", "v1", "statefulsets", "StatefulSet", StatefulSetStrategy(), "status scale", "sts", "all"),
        Row("apps", "v1", "daemonsets", "DaemonSet", DaemonSetStrategy(), "status", "ds", "all"),
        Row("apps", "v1", "controllerrevisions", "ControllerRevision", plain),
        Row("batch", "v1", "jobs", "Job", JobStrategy(), "status", "", "all"),
        Row("batch", "v1", "cronjobs", "CronJob", CronJobStrategy(), "status", "cj", "all"),
        Row(
            "policy",
            "v1",
            "poddisruptionbudgets",
            "PodDisruptionBudget",
            DisruptionBudgetStrategy(),
            "status",
            "pdb",
        ),
        Row("scheduling.k8s.io", "v1", "-priorityclasses", "PriorityClass", PriorityClassStrategy(), "", "pc"),
        Row("coordination.k8s.io", "v1", "leases", "Lease", LeaseStrategy()),
        Row("storage.k8s.io", "v1", "-storageclasses", "StorageClass", VolumeClassStrategy(), "", "sc"),
        Row("storage.k8s.io", "v1", "-csinodes", "CSINode", plain),
        Row("storage.k8s.io", "v1", "-csidrivers", "CSIDriver", DriverStrategy()),
        Row("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", plain),
        Row("storage.k8s.io", "v1", "-volumeattachments", "VolumeAttachment", AttachmentStrategy(), "status"),
        Row("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", ResourceClaimStrategy(), "status"),
        Row(
            "resource.k8s.io",
            "v1",
            "resourceclaimtemplates",
            "ResourceClaimTemplate",
            ResourceClaimTemplateStrategy(),
        ),
        Row("resource.k8s.io", "v1", "-deviceclasses", "DeviceClass", spec),
        Row("resource.k8s.io", "v1", "-devicetaintrules", "DeviceTaintRule", spec, "status"),
        Row("resource.k8s.io", "v1", "-resourceslices", "ResourceSlice", ResourceSliceStrategy()),
        Row("node.k8s.io", "v1", "-runtimeclasses", "RuntimeClass", plain),
        Row("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", plain),
        Row("networking.k8s.io", "v1", "ingresses", "Ingress", spec, "status", "ing"),
        Row("networking.k8s.io", "v1", "-ingressclasses", "IngressClass", spec),
        Row("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", spec, "", "netpol"),
        Row("rbac.authorization.k8s.io", "v1", "roles", "Role", RoleStrategy("Role")),
        Row("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", BindingStrategy("RoleBinding")),
        Row("rbac.authorization.k8s.io", "v1", "-clusterroles", "ClusterRole", RoleStrategy("ClusterRole")),
        Row(
            "rbac.authorization.k8s.io",
            "v1",
            "-clusterrolebindings",
            "ClusterRoleBinding",
            BindingStrategy("ClusterRoleBinding"),
        ),
        Row(
            "admissionregistration.k8s.io",
            "v1",
            "-mutatingwebhookconfigurations",
            "MutatingWebhookConfiguration",
            WebhookStrategy(mutating=True),
            "",
            "",
            "api-extensions",
        ),
        Row(
            "admissionregistration.k8s.io",
            "v1",
            "-validatingwebhookconfigurations",
            "ValidatingWebhookConfiguration",
            WebhookStrategy(mutating=False),
            "",
            "",
            "api-extensions",
        ),
        Row(
            "admissionregistration.k8s.io",
            "v1",
            "-validatingadmissionpolicies",
            "ValidatingAdmissionPolicy",
            PolicyStrategy(),
            "status",
            "",
            "api-extensions",
        ),
        Row(
            "admissionregistration.k8s.io",
            "v1",
            "-validatingadmissionpolicybindings",
            "ValidatingAdmissionPolicyBinding",
            PolicyBindingStrategy(),
            "",
            "",
            "api-extensions",
        ),
        Row("apiregistration.k8s.io", "v1", "-apiservices", "APIService", plain, "status", "", "api-extensions"),
        Row("flowcontrol.apiserver.k8s.io", "v1", "-flowschemas", "FlowSchema", spec, "status"),
        Row(
            "flowcontrol.apiserver.k8s.io",
            "v1",
            "-prioritylevelconfigurations",
            "PriorityLevelConfiguration",
            spec,
            "status",
        ),
    ]


_REVIEWS = (
    ("authentication.k8s.io", "-tokenreviews", "TokenReview"),
    ("authentication.k8s.io", "-selfsubjectreviews", "SelfSubjectReview"),
    ("authorization.k8s.io", "-subjectaccessreviews", "SubjectAccessReview"),
    ("authorization.k8s.io", "-selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ("authorization.k8s.io", "-selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ("authorization.k8s.io", "localsubjectaccessreviews", "LocalSubjectAccessReview"),
)


def build_registry(
    native_groups: str, *, protect_groups: bool, taint_nodes: bool = False, protect_volumes: bool = False
) -> Registry:
    """Return the registry of all built-in types. `native_groups` is the served version of the gang API, or
    "none".
    """
    core = _core(
        group_field=group_field_of(native_groups), taint_nodes=taint_nodes, protect_volumes=protect_volumes
    )
    rows = core + _named_groups()
    rows += _native_groups(native_groups, protect_groups)
    for group, plural, kind in _REVIEWS:
        rows.append(Row(group, "v1", plural, kind, RestStrategy(), verbs=("create",)))
    registry = Registry(_build(row) for row in rows)
    if native_groups == "v1alpha3":
        for plural in ("workloads", "podgroups"):
            _serve_as_well(registry, plural, "v1alpha3")
    _add_crds(registry)
    _add_events_view(registry)
    return registry


def group_field_of(native_groups: str) -> str:
    """Return the pod spec field that references a group in this version of the native gang API; "" if the API is
    not served."""
    return {"none": "", "v1alpha1": "workloadRef"}.get(native_groups, "schedulingGroup")


def _native_groups(version: str, protect: bool) -> list[Row]:
    """Return the resources of the native gang API as the release with this version serves them (1.37 has v1alpha3
    beside v1beta1)."""
    group = "scheduling.k8s.io"
    if version == "none":
        return []
    if version == "v1alpha1":
        return [Row(group, version, "workloads", "Workload", RestStrategy())]
    composites, main = version == "v1alpha3", "v1beta1" if version == "v1alpha3" else version
    groups = PodGroupStrategy(main, protect=protect, composites=composites)
    rows = [
        Row(group, main, "workloads", "Workload", WorkloadTemplateStrategy(main, composites=composites)),
        Row(group, main, "podgroups", "PodGroup", groups, "status"),
    ]
    if composites:
        strategy = CompositePodGroupStrategy()
        rows.append(Row(group, version, "compositepodgroups", "CompositePodGroup", strategy, "status"))
    return rows


def _serve_as_well(registry: Registry, plural: str, name: str) -> None:
    """Serve a resource in one more version, which differs only in apiVersion."""
    type_ = registry.find("scheduling.k8s.io", plural)
    assert type_ is not None
    type_.versions[name] = Version(name, type_, subresources=type_.preferred.subresources)


def _build(row: Row) -> ResourceType:
    type_ = ResourceType(
        group=row.group,
        plural=row.plural.lstrip("-"),
        kind=row.kind,
        namespaced=not row.plural.startswith("-"),
        strategy=row.strategy,
        short_names=tuple(row.short.split()),
        categories=tuple(row.categories.split()),
        verbs=row.verbs,
        stored_version=row.version,
    )
    extra = frozenset(row.extra.split())
    scale = _REPLICAS if "scale" in extra else None
    type_.versions[row.version] = Version(row.version, type_, subresources=extra, scale=scale)
    return type_


def _add_crds(registry: Registry) -> None:
    from phalanx_local.strategies.definitions import DefinitionStrategy

    row = Row(
        "apiextensions.k8s.io",
        "v1",
        "-customresourcedefinitions",
        "CustomResourceDefinition",
        DefinitionStrategy(),
        "status",
        "crd crds",
        "api-extensions",
    )
    registry.add(_build(row))


def _add_events_view(registry: Registry) -> None:
    core = registry.find("", "events")
    assert core is not None
    view = ResourceType(
        group="events.k8s.io",
        plural="events",
        kind="Event",
        namespaced=True,
        strategy=core.strategy,
        short_names=("ev",),
        storage=core.storage,
        stored_version="v1",
    )
    view.versions["v1"] = Version(
        "v1",
        view,
        to_view=to_events_v1,
        from_view=from_events_v1,
        check_new=check_new_event,
        field_aliases=EVENTS_V1_LABELS,
    )
    registry.add(view)
