"""Manifests of `phalanx install`: custom resource definitions, access rules, flow schemas and queues."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from phalanx.daemon.controllers.defragmentation_record import NAME as DEFRAGMENTATION
from phalanx.daemon.controllers.policy_record import NAME as POLICIES
from phalanx.daemon.controllers.recent_history_record import NAME as RECENT_HISTORY
from phalanx.daemon.controllers.usage_record import MOST_OBJECTS
from phalanx.daemon.controllers.usage_record import NAME as USAGE
from phalanx.daemon.signing_keys import NAME as SIGNING_KEYS
from phalanx.dialects.dialect import READ
from phalanx.dialects.dispatched import HUB_LEASE
from phalanx.dialects.quotas.queues import builtin_queues
from phalanx.dialects.registry import installed_dialects
from phalanx.jobs.spec import BATCH, BUS, FLOW
from phalanx.kube.own_objects import LABELS, default_lease, name_prefix
from phalanx.kube.paths import Resource
from phalanx.model.text.yaml_text import decode_yaml
from phalanx.views.promise_record import NAME as RESERVATIONS

Manifest = dict[str, Any]

# Default lease namespace of `phalanx scheduler --leader-elect` (SchedulerOptions).
LEASE_NAMESPACE = "kube-system"

QUEUES_DEFINITION = "queues.scheduling.volcano.sh"

# Kind -> plural, for the installed kinds.
_PLURALS = {
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "FlowSchema": "flowschemas",
    "Service": "services",
    "APIService": "apiservices",
    "CustomResourceDefinition": "customresourcedefinitions",
    "Queue": "queues",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}


def definitions() -> list[Manifest]:
    """Return the CustomResourceDefinitions to install; API groups that upstream projects still serve come first.

    Several groups have queues, quotas and PodGroups. The embedded API server lists groups in order of creation, and
    kubectl resolves a bare name such as `queue` to the first group.
    """
    retired = [group for dialect in installed_dialects() for group in dialect.retired]
    files = [
        entry
        for dialect in installed_dialects()
        if dialect.definitions is not None
        for entry in dialect.definitions.iterdir()
        if entry.name.endswith(".yaml")
    ]
    files.sort(key=lambda file: (any(f".{group}." in file.name for group in retired), file.name))
    return [read_definition(file.read_text(encoding="utf-8")) for file in files]


def read_definition(text: str) -> Manifest:
    """Decode the CustomResourceDefinition in `text` to a new object that the caller can change."""
    definition: Manifest = msgspec.json.decode(_as_json(text))
    return definition


@functools.lru_cache(maxsize=256)
def _as_json(text: str) -> bytes:
    """Convert YAML to JSON; decoding JSON is 50 times faster than YAML, and each file is read several times."""
    return msgspec.json.encode(decode_yaml(text))


def access(account: str, namespace: str, scheduler_name: str = "phalanx", lease: str = "") -> list[Manifest]:
    """Return the scheduler's service account with minimal rights.

    The names of its lease and ConfigMaps depend on `scheduler_name` (kube/own_objects.py).
    """
    own = list(_own_rules(scheduler_name, lease))
    return [
        make_object("v1", "Namespace", namespace),
        *account_with_rights(account, namespace, list(_cluster_rules()), (LEASE_NAMESPACE, own)),
        # The Secret has no key yet: the first scheduler adds one, and a repeated installation does not change it.
        make_object("v1", "Secret", SIGNING_KEYS, LEASE_NAMESPACE, type="Opaque"),
        *tenant_roles(),
    ]


def job_rules(verbs: Sequence[str]) -> list[Manifest]:
    """Return access rules for PodGroups and for jobs that create grouped pods."""
    return [
        make_rule(_group_groups(), ["podgroups"], verbs),
        make_rule([BATCH], ["jobs", "cronjobs"], verbs),
        make_rule([FLOW], ["jobflows", "jobtemplates"], verbs),
        make_rule([BUS], ["commands"], verbs),
    ]


def _group_groups() -> list[str]:
    """Return the API groups whose PodGroup definitions Phalanx installs."""
    return list(
        dict.fromkeys(
            declaration.kind.group
            for dialect in installed_dialects()
            if dialect.definitions is not None
            for declaration in dialect.groups
        )
    )


def tenant_roles() -> list[Manifest]:
    """Return roles that extend the cluster roles `edit` and `view` from pods to PodGroups."""
    groups = _group_groups()
    verbs = ["create", "delete", "deletecollection", "patch", "update"]
    read_rule = make_rule(groups, ["podgroups", "podgroups/status", "elasticquotas", "elasticquotas/status"], READ)
    jobs, flows = ["jobs", "cronjobs"], ["jobflows", "jobtemplates"]
    return [
        _aggregated_role("edit", *job_rules(verbs)),
        _aggregated_role(
            "view",
            read_rule,
            *(
                make_rule([group], [*names, *(f"{name}/status" for name in names)], READ)
                for group, names in ((BATCH, jobs), (FLOW, flows))
            ),
            make_rule([BUS], ["commands"], READ),
        ),
    ]


def _aggregated_role(into: str, *rules: Manifest) -> Manifest:
    role = make_object(f"{RBAC}/v1", "ClusterRole", f"phalanx-podgroups-{into}", rules=list(rules))
    role["metadata"]["labels"][f"{RBAC}/aggregate-to-{into}"] = "true"
    return role


def flow_schemas(account: str, namespace: str) -> list[Manifest]:
    """Return flow schemas of the API server; without them the scheduler's requests share a queue with all service
    accounts."""
    leases = _resource_rule(["get", "create", "update"], ["coordination.k8s.io"], ["leases"], [LEASE_NAMESPACE])
    everything = _resource_rule(["*"], ["*"], ["*"], ["*"], clusterScope=True)
    urls = {"verbs": ["get"], "nonResourceURLs": ["*"]}
    return [
        _flow_schema(f"{account}-leases", "leader-election", 150, account, namespace, [leases], []),
        _flow_schema(account, "workload-high", 850, account, namespace, [everything], [urls]),
    ]


def volcano_queues() -> list[Manifest]:
    """Return the queues that Volcano creates at start; a group without queue waits in `default`."""
    return [
        make_object(queue["apiVersion"], queue["kind"], queue["metadata"]["name"], spec=queue["spec"])
        for queue in builtin_queues()
    ]


RBAC = "rbac.authorization.k8s.io"


def _cluster_rules() -> Iterator[Manifest]:
    # Patch removes the scheduler's own scheduling gate (daemon/controllers/queue_gates.py).
    yield make_rule([""], ["pods"], [*READ, "delete", "patch"])
    yield make_rule([""], ["pods/binding"], ["create"])
    yield make_rule([""], ["pods/status"], ["patch"])
    yield make_rule([""], ["pods/eviction"], ["create"])
    # Patch cordons nodes for maintenance and uncordons them afterwards (daemon/controllers/maintenance_windows.py).
    yield make_rule([""], ["nodes"], [*READ, "patch"])
    yield make_rule([""], ["namespaces", "resourcequotas"], READ)
    # Owners of pods with default spread constraints (`phalanx.dialects.defaultSpread` of the policy).
    yield make_rule([""], ["services", "replicationcontrollers"], READ)
    yield make_rule(["apps"], ["replicasets", "statefulsets"], READ)
    yield make_rule([""], ["persistentvolumes", "persistentvolumeclaims"], [*READ, "patch"])
    storage = ["storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"]
    yield make_rule(["storage.k8s.io"], storage, READ)
    yield make_rule(["resource.k8s.io"], ["deviceclasses", "devicetaintrules", "resourceslices"], READ)
    # Patch adds the protection finalizer while pods use a claim. Devices are allocated and claims reserved in
    # the status,
    # which needs the right to bind since 1.36.
    yield make_rule(["resource.k8s.io"], ["resourceclaims"], [*READ, "create", "patch", "delete"])
    yield make_rule(["resource.k8s.io"], ["resourceclaims/status", "resourceclaims/binding"], ["patch", "update"])
    yield make_rule(["policy"], ["poddisruptionbudgets"], READ)
    # A restart reads whether the API still has an event before it records it again.
    yield make_rule(["events.k8s.io"], ["events"], ["create", "get", "patch"])
    yield make_rule(["scheduling.k8s.io"], ["priorityclasses"], READ)
    yield from _dialect_rules()
    yield make_rule(["metrics.k8s.io"], ["nodes"], ["get", "list"])
    # Requests for /configz and /debug are authenticated and authorized (kube/path_access.py).
    yield make_rule(["authentication.k8s.io"], ["tokenreviews"], ["create"])
    yield make_rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"])
    # A virtual resource: the admission policies check the right to write scheduling results (cli/policies/).
    yield make_rule(["phalanx.dev"], ["schedulingresults"], ["write"])
    yield make_rule(["apiextensions.k8s.io"], ["customresourcedefinitions"], READ)


def reading_rules() -> list[Manifest]:
    """Return the read-only part of the scheduler's rights."""
    rules = []
    for rule in _cluster_rules():
        verbs = [verb for verb in rule["verbs"] if verb in READ]
        if verbs:
            rules.append({**rule, "verbs": verbs})
    return rules


def _dialect_rules() -> Iterator[Manifest]:
    """Yield the access rules of all dialects, with API groups of equal rules merged."""
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for dialect in installed_dialects():
        for rule in dialect.access:
            groups.setdefault((rule.resources, rule.verbs), []).append(rule.group)
    for (names, verbs), members in groups.items():
        yield make_rule(list(dict.fromkeys(members)), names, verbs)


def _own_rules(scheduler_name: str, lease: str) -> Iterator[Manifest]:
    """Yield access rules for the scheduler's own objects: lease, usage and promise records, defragmentation budget,
    keys.

    RBAC cannot limit a right to create to one name. The Secret therefore exists already: a right to create Secrets
    would allow tokens for other accounts.
    """
    group, leases = ["coordination.k8s.io"], ["leases"]
    yield make_rule(group, leases, ["create"])
    yield {
        **make_rule(group, leases, ["get", "update"]),
        "resourceNames": [lease or default_lease([scheduler_name])],
    }
    # Lease of a hub that dispatches gangs to this cluster, if any (daemon/hub_lease.py).
    yield {**make_rule(group, leases, ["get"]), "resourceNames": [HUB_LEASE]}
    yield make_rule([""], ["configmaps"], ["create"])
    names = _record_names(scheduler_name, DEFRAGMENTATION)
    yield {**make_rule([""], ["configmaps"], ["get", "patch"]), "resourceNames": names}
    yield {**make_rule([""], ["secrets"], ["get", "update"]), "resourceNames": [SIGNING_KEYS]}


def records_rule(scheduler_name: str = "phalanx") -> Manifest:
    """Return an access rule to read the scheduler's policy, promises and usage records, for dry runs."""
    return {**make_rule([""], ["configmaps"], ["get"]), "resourceNames": _record_names(scheduler_name)}


def _record_names(scheduler_name: str, *further: str) -> list[str]:
    usages = (f"{USAGE}-{number}" for number in range(MOST_OBJECTS))
    prefix = name_prefix([scheduler_name])
    return [*(f"{prefix}-{record}" for record in (*usages, RESERVATIONS, RECENT_HISTORY, *further)), POLICIES]


def make_rule(groups: Sequence[str], names: Sequence[str], verbs: Sequence[str]) -> Manifest:
    return {"apiGroups": list(groups), "resources": list(names), "verbs": list(verbs)}


def account_with_rights(
    name: str, namespace: str, rules: Sequence[Manifest], *roles: tuple[str, Sequence[Manifest]]
) -> list[Manifest]:
    """Return a service account with the access rules `rules` in the cluster, and the rules of `roles` in their
    namespaces."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    account = [
        make_object("v1", "ServiceAccount", name, namespace),
        make_object(f"{RBAC}/v1", "ClusterRole", name, rules=list(rules)),
        make_binding("ClusterRole", name, subject),
    ]
    for role_namespace, own in roles:
        account += [
            make_object(f"{RBAC}/v1", "Role", name, role_namespace, rules=list(own)),
            make_binding("Role", name, subject, role_namespace),
        ]
    return account


def lease_rules(lease: str) -> list[Manifest]:
    """Return the rights to create leases and to renew `lease`."""
    groups = ["coordination.k8s.io"]
    renewal = make_rule(groups, ["leases"], ["get", "update"])
    return [make_rule(groups, ["leases"], ["create"]), {**renewal, "resourceNames": [lease]}]


def make_binding(role: str, account: str, subject: Manifest, namespace: str = "") -> Manifest:
    reference = {"apiGroup": RBAC, "kind": role, "name": account}
    return make_object(f"{RBAC}/v1", f"{role}Binding", account, namespace, roleRef=reference, subjects=[subject])


def _resource_rule(
    verbs: list[str], groups: list[str], names: list[str], namespaces: list[str], **extra: bool
) -> Manifest:
    return {"verbs": verbs, "apiGroups": groups, "resources": names, "namespaces": namespaces, **extra}


def _flow_schema(
    name: str,
    level: str,
    precedence: int,
    account: str,
    namespace: str,
    resource_rules: list[Manifest],
    url_rules: list[Manifest],
) -> Manifest:
    rule: Manifest = {
        "subjects": [{"kind": "ServiceAccount", "serviceAccount": {"name": account, "namespace": namespace}}],
        "resourceRules": resource_rules,
    }
    if url_rules:
        rule["nonResourceRules"] = url_rules
    spec = {
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [rule],
    }
    return make_object("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", name, spec=spec)


def make_object(api_version: str, kind: str, name: str, namespace: str = "", **content: Any) -> Manifest:
    metadata: Manifest = {"name": name, "labels": dict(LABELS)}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def object_path(manifest: Manifest) -> str:
    """Return the URL path of an installed object."""
    group, _, version = manifest["apiVersion"].rpartition("/")
    metadata = manifest["metadata"]
    namespace = metadata.get("namespace")
    resource = Resource(group, version, _PLURALS[manifest["kind"]], namespaced=namespace is not None)
    return resource.path(namespace, metadata["name"])
