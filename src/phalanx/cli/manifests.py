"""What `phalanx install` brings into a cluster: custom resource definitions, rights, flow schemas, queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from phalanx.daemon.controllers.usage_record import MOST_OBJECTS
from phalanx.daemon.controllers.usage_record import NAME as USAGE
from phalanx.daemon.signing_keys import NAME as SIGNING_KEYS
from phalanx.dialects.dialect import READ
from phalanx.dialects.quotas.queues import builtin_queues
from phalanx.dialects.registry import installed_dialects
from phalanx.kube.own_objects import LABELS

Manifest = dict[str, Any]

# Where `phalanx scheduler --leader-elect` keeps its lease by default; it is named like the account.
LEASE_NAMESPACE = "kube-system"

QUEUES_DEFINITION = "queues.scheduling.volcano.sh"


def definitions() -> list[Manifest]:
    """The custom resource definitions, those of groups that are still served by their projects first.

    Several groups have queues, quotas and PodGroups. The embedded API server lists groups as they come, and kubectl
    takes a bare name such as `queue` for that of the first group.
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
    return [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]


def access(account: str, namespace: str) -> list[Manifest]:
    """A service account for the scheduler with the rights that it uses, and no other."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    return [
        _object("v1", "Namespace", namespace),
        _object("v1", "ServiceAccount", account, namespace),
        _object(f"{_RBAC}/v1", "ClusterRole", account, rules=list(_cluster_rules())),
        _binding("ClusterRole", account, subject),
        _object(f"{_RBAC}/v1", "Role", account, LEASE_NAMESPACE, rules=list(_own_rules(account))),
        _binding("Role", account, subject, LEASE_NAMESPACE),
        # Without a key: the first scheduler puts one in, and installing anew leaves it alone.
        _object("v1", "Secret", SIGNING_KEYS, LEASE_NAMESPACE, type="Opaque"),
        *tenant_roles(),
    ]


def tenant_roles() -> list[Manifest]:
    """What the cluster's roles `edit` and `view` gather: whoever may handle pods may handle their groups."""
    groups = list(
        dict.fromkeys(
            each.kind.group
            for dialect in installed_dialects()
            if dialect.definitions is not None
            for each in dialect.groups
        )
    )
    handled = _rule(groups, ["podgroups"], ["create", "delete", "deletecollection", "patch", "update"])
    seen = _rule(groups, ["podgroups", "podgroups/status", "elasticquotas", "elasticquotas/status"], READ)
    return [_gathered("edit", handled), _gathered("view", seen)]


def _gathered(into: str, rule: Manifest) -> Manifest:
    role = _object(f"{_RBAC}/v1", "ClusterRole", f"phalanx-podgroups-{into}", rules=[rule])
    role["metadata"]["labels"][f"{_RBAC}/aggregate-to-{into}"] = "true"
    return role


def flow_schemas(account: str, namespace: str) -> list[Manifest]:
    """Without them the API server queues a scheduler behind every other service account's requests."""
    leases = _resource_rule(["get", "create", "update"], ["coordination.k8s.io"], ["leases"], [LEASE_NAMESPACE])
    everything = _resource_rule(["*"], ["*"], ["*"], ["*"], clusterScope=True)
    urls = {"verbs": ["get"], "nonResourceURLs": ["*"]}
    return [
        _flow_schema(f"{account}-leases", "leader-election", 150, account, namespace, [leases], []),
        _flow_schema(account, "workload-high", 850, account, namespace, [everything], [urls]),
    ]


def volcano_queues() -> list[Manifest]:
    """The queues that Volcano makes when it starts: groups without a queue wait in `default`."""
    return [
        _object(queue["apiVersion"], queue["kind"], queue["metadata"]["name"], spec=queue["spec"])
        for queue in builtin_queues()
    ]


_RBAC = "rbac.authorization.k8s.io"


def _cluster_rules() -> Iterator[Manifest]:
    # Patched is the one gate that is ours to lift (daemon/controllers/queue_gates.py).
    yield _rule([""], ["pods"], [*READ, "delete", "patch"])
    yield _rule([""], ["pods/binding"], ["create"])
    yield _rule([""], ["pods/status"], ["patch"])
    yield _rule([""], ["pods/eviction"], ["create"])
    yield _rule([""], ["nodes", "namespaces", "resourcequotas"], READ)
    # Whose pods are spread by default (the policy's `phalanx.dialects.defaultSpread`).
    yield _rule([""], ["services", "replicationcontrollers"], READ)
    yield _rule(["apps"], ["replicasets", "statefulsets"], READ)
    yield _rule([""], ["persistentvolumes", "persistentvolumeclaims"], [*READ, "patch"])
    storage = ["storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"]
    yield _rule(["storage.k8s.io"], storage, READ)
    yield _rule(["resource.k8s.io"], ["deviceclasses", "resourceslices"], READ)
    # Claims are patched to protect them while pods use them. Devices are given and claims reserved by writing the
    # status, which since 1.36 needs the right to bind as well.
    yield _rule(["resource.k8s.io"], ["resourceclaims"], [*READ, "create", "patch", "delete"])
    yield _rule(["resource.k8s.io"], ["resourceclaims/status", "resourceclaims/binding"], ["patch", "update"])
    yield _rule(["policy"], ["poddisruptionbudgets"], READ)
    yield _rule(["events.k8s.io"], ["events"], ["create", "patch"])
    yield _rule(["scheduling.k8s.io"], ["priorityclasses"], READ)
    yield from _dialect_rules()
    yield _rule(["metrics.k8s.io"], ["nodes"], ["get", "list"])
    # No resource of any API: the admission policies ask who may write what schedulers write (cli/policies/).
    yield _rule(["phalanx.dev"], ["schedulingresults"], ["write"])
    yield _rule(["apiextensions.k8s.io"], ["customresourcedefinitions"], READ)


def _dialect_rules() -> Iterator[Manifest]:
    """What the dialects need, the API groups of equal rules together."""
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for dialect in installed_dialects():
        for rule in dialect.access:
            groups.setdefault((rule.resources, rule.verbs), []).append(rule.group)
    for (names, verbs), members in groups.items():
        yield _rule(list(dict.fromkeys(members)), names, verbs)


def _own_rules(name: str) -> Iterator[Manifest]:
    """What is the scheduler's own: its lease, the memory of what accounts used, the keys that it signs with.

    A right to create cannot be limited to one name. The Secret is there already: a right to create Secrets would be
    one to make tokens for other accounts.
    """
    group, leases = ["coordination.k8s.io"], ["leases"]
    yield _rule(group, leases, ["create"])
    yield {**_rule(group, leases, ["get", "update"]), "resourceNames": [name]}
    names = [f"{USAGE}-{number}" for number in range(MOST_OBJECTS)]
    yield _rule([""], ["configmaps"], ["create"])
    yield {**_rule([""], ["configmaps"], ["get", "patch"]), "resourceNames": names}
    yield {**_rule([""], ["secrets"], ["get", "update"]), "resourceNames": [SIGNING_KEYS]}


def _rule(groups: Sequence[str], names: Sequence[str], verbs: Sequence[str]) -> Manifest:
    return {"apiGroups": list(groups), "resources": list(names), "verbs": list(verbs)}


def _binding(role: str, account: str, subject: Manifest, namespace: str = "") -> Manifest:
    reference = {"apiGroup": _RBAC, "kind": role, "name": account}
    return _object(f"{_RBAC}/v1", f"{role}Binding", account, namespace, roleRef=reference, subjects=[subject])


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
    return _object("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", name, spec=spec)


def _object(api_version: str, kind: str, name: str, namespace: str = "", **content: Any) -> Manifest:
    metadata: Manifest = {"name": name, "labels": dict(LABELS)}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}
