"""What `phalanx install` brings into a cluster: custom resource definitions, rights, flow schemas, queues."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from phalanx.daemon.controllers.defragmentation_record import NAME as DEFRAGMENTATION
from phalanx.daemon.controllers.policy_record import NAME as POLICY
from phalanx.daemon.controllers.usage_record import MOST_OBJECTS
from phalanx.daemon.controllers.usage_record import NAME as USAGE
from phalanx.daemon.signing_keys import NAME as SIGNING_KEYS
from phalanx.dialects.dialect import READ
from phalanx.dialects.dispatched import HUB_LEASE
from phalanx.dialects.quotas.queues import builtin_queues
from phalanx.dialects.registry import installed_dialects
from phalanx.jobs.spec import BATCH, BUS, FLOW
from phalanx.kube.own_objects import LABELS, default_lease, name_prefix
from phalanx.model.text.yaml_text import decode_yaml
from phalanx.views.promise_record import NAME as RESERVATIONS

Manifest = dict[str, Any]

# Where `phalanx scheduler --leader-elect` keeps its lease by default (SchedulerOptions).
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
    return [read_definition(file.read_text(encoding="utf-8")) for file in files]


def read_definition(text: str) -> Manifest:
    """Return the definition that a file holds, for the caller to change as it likes."""
    definition: Manifest = msgspec.json.decode(_as_json(text))
    return definition


@functools.lru_cache(maxsize=256)
def _as_json(text: str) -> bytes:
    """JSON is decoded fifty times as fast as YAML, and whoever installs reads each definition several times."""
    return msgspec.json.encode(decode_yaml(text))


def access(account: str, namespace: str, scheduler_name: str = "phalanx", lease: str = "") -> list[Manifest]:
    """A service account for the scheduler with the rights that it uses, and no other. The lease, and the ConfigMaps
    of what it remembers, are those that a scheduler of this name takes (kube/own_objects.py)."""
    own = list(_own_rules(scheduler_name, lease))
    return [
        make_object("v1", "Namespace", namespace),
        *account_with_rights(account, namespace, list(_cluster_rules()), (LEASE_NAMESPACE, own)),
        # Without a key: the first scheduler puts one in, and installing anew leaves it alone.
        make_object("v1", "Secret", SIGNING_KEYS, LEASE_NAMESPACE, type="Opaque"),
        *tenant_roles(),
    ]


def job_rules(verbs: Sequence[str]) -> list[Manifest]:
    """Of groups and of what makes pods in groups."""
    return [
        make_rule(_group_groups(), ["podgroups"], verbs),
        make_rule([BATCH], ["jobs", "cronjobs"], verbs),
        make_rule([FLOW], ["jobflows", "jobtemplates"], verbs),
        make_rule([BUS], ["commands"], verbs),
    ]


def _group_groups() -> list[str]:
    """The API groups of which we bring definitions of groups of pods."""
    return list(
        dict.fromkeys(
            each.kind.group
            for dialect in installed_dialects()
            if dialect.definitions is not None
            for each in dialect.groups
        )
    )


def tenant_roles() -> list[Manifest]:
    """What the cluster's roles `edit` and `view` gather: whoever may handle pods may handle their groups."""
    groups = _group_groups()
    verbs = ["create", "delete", "deletecollection", "patch", "update"]
    seen = make_rule(groups, ["podgroups", "podgroups/status", "elasticquotas", "elasticquotas/status"], READ)
    jobs, flows = ["jobs", "cronjobs"], ["jobflows", "jobtemplates"]
    return [
        _gathered("edit", *job_rules(verbs)),
        _gathered(
            "view",
            seen,
            *(
                make_rule([group], [*names, *(f"{name}/status" for name in names)], READ)
                for group, names in ((BATCH, jobs), (FLOW, flows))
            ),
            make_rule([BUS], ["commands"], READ),
        ),
    ]


def _gathered(into: str, *rules: Manifest) -> Manifest:
    role = make_object(f"{RBAC}/v1", "ClusterRole", f"phalanx-podgroups-{into}", rules=list(rules))
    role["metadata"]["labels"][f"{RBAC}/aggregate-to-{into}"] = "true"
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
        make_object(queue["apiVersion"], queue["kind"], queue["metadata"]["name"], spec=queue["spec"])
        for queue in builtin_queues()
    ]


RBAC = "rbac.authorization.k8s.io"


def _cluster_rules() -> Iterator[Manifest]:
    # Patched is the one gate that is ours to lift (daemon/controllers/queue_gates.py).
    yield make_rule([""], ["pods"], [*READ, "delete", "patch"])
    yield make_rule([""], ["pods/binding"], ["create"])
    yield make_rule([""], ["pods/status"], ["patch"])
    yield make_rule([""], ["pods/eviction"], ["create"])
    # Patched to cordon nodes for maintenance, and to uncordon those (daemon/controllers/maintenance_windows.py).
    yield make_rule([""], ["nodes"], [*READ, "patch"])
    yield make_rule([""], ["namespaces", "resourcequotas"], READ)
    # Whose pods are spread by default (the policy's `phalanx.dialects.defaultSpread`).
    yield make_rule([""], ["services", "replicationcontrollers"], READ)
    yield make_rule(["apps"], ["replicasets", "statefulsets"], READ)
    yield make_rule([""], ["persistentvolumes", "persistentvolumeclaims"], [*READ, "patch"])
    storage = ["storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"]
    yield make_rule(["storage.k8s.io"], storage, READ)
    yield make_rule(["resource.k8s.io"], ["deviceclasses", "resourceslices"], READ)
    # Claims are patched to protect them while pods use them. Devices are given and claims reserved by writing the
    # status, which since 1.36 needs the right to bind as well.
    yield make_rule(["resource.k8s.io"], ["resourceclaims"], [*READ, "create", "patch", "delete"])
    yield make_rule(["resource.k8s.io"], ["resourceclaims/status", "resourceclaims/binding"], ["patch", "update"])
    yield make_rule(["policy"], ["poddisruptionbudgets"], READ)
    # A restart reads whether the API still has an event before it records it again.
    yield make_rule(["events.k8s.io"], ["events"], ["create", "get", "patch"])
    yield make_rule(["scheduling.k8s.io"], ["priorityclasses"], READ)
    yield from _dialect_rules()
    yield make_rule(["metrics.k8s.io"], ["nodes"], ["get", "list"])
    # Who asks for /configz and /debug is asked who he is and what he may (kube/path_access.py).
    yield make_rule(["authentication.k8s.io"], ["tokenreviews"], ["create"])
    yield make_rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"])
    # No resource of any API: the admission policies ask who may write what schedulers write (cli/policies/).
    yield make_rule(["phalanx.dev"], ["schedulingresults"], ["write"])
    yield make_rule(["apiextensions.k8s.io"], ["customresourcedefinitions"], READ)


def reading_rules() -> list[Manifest]:
    """Of the scheduler's rights those to read."""
    rules = []
    for rule in _cluster_rules():
        verbs = [verb for verb in rule["verbs"] if verb in READ]
        if verbs:
            rules.append({**rule, "verbs": verbs})
    return rules


def _dialect_rules() -> Iterator[Manifest]:
    """What the dialects need, the API groups of equal rules together."""
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for dialect in installed_dialects():
        for rule in dialect.access:
            groups.setdefault((rule.resources, rule.verbs), []).append(rule.group)
    for (names, verbs), members in groups.items():
        yield make_rule(list(dict.fromkeys(members)), names, verbs)


def _own_rules(scheduler_name: str, lease: str) -> Iterator[Manifest]:
    """What is the scheduler's own: its lease, the memory of what accounts used of promised starts and of
    defragmentation's budget, the keys that it signs with.

    A right to create cannot be limited to one name. The Secret is there already: a right to create Secrets would be
    one to make tokens for other accounts.
    """
    group, leases = ["coordination.k8s.io"], ["leases"]
    yield make_rule(group, leases, ["create"])
    yield {
        **make_rule(group, leases, ["get", "update"]),
        "resourceNames": [lease or default_lease([scheduler_name])],
    }
    # That of a hub which sends gangs here, if there is one (daemon/hub_lease.py).
    yield {**make_rule(group, leases, ["get"]), "resourceNames": [HUB_LEASE]}
    yield make_rule([""], ["configmaps"], ["create"])
    names = _record_names(scheduler_name, DEFRAGMENTATION)
    yield {**make_rule([""], ["configmaps"], ["get", "patch"]), "resourceNames": names}
    yield {**make_rule([""], ["secrets"], ["get", "update"]), "resourceNames": [SIGNING_KEYS]}


def records_rule(scheduler_name: str = "phalanx") -> Manifest:
    """For whoever rehearses the scheduler: which policy it uses, what it has promised, and what accounts used."""
    return {**make_rule([""], ["configmaps"], ["get"]), "resourceNames": _record_names(scheduler_name)}


def _record_names(scheduler_name: str, *further: str) -> list[str]:
    usages = (f"{USAGE}-{number}" for number in range(MOST_OBJECTS))
    prefix = name_prefix([scheduler_name])
    return [f"{prefix}-{each}" for each in (*usages, RESERVATIONS, *further, POLICY)]


def make_rule(groups: Sequence[str], names: Sequence[str], verbs: Sequence[str]) -> Manifest:
    return {"apiGroups": list(groups), "resources": list(names), "verbs": list(verbs)}


def account_with_rights(
    name: str, namespace: str, rules: Sequence[Manifest], *roles: tuple[str, Sequence[Manifest]]
) -> list[Manifest]:
    """Return a service account with `rules` everywhere, and rules of their own in the namespaces of `roles`."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    account = [
        make_object("v1", "ServiceAccount", name, namespace),
        make_object(f"{RBAC}/v1", "ClusterRole", name, rules=list(rules)),
        make_binding("ClusterRole", name, subject),
    ]
    for place, own in roles:
        account += [
            make_object(f"{RBAC}/v1", "Role", name, place, rules=list(own)),
            make_binding("Role", name, subject, place),
        ]
    return account


def lease_rules(lease: str) -> list[Manifest]:
    """Return the rights to make leases, and to renew the one that is called `lease`."""
    groups = ["coordination.k8s.io"]
    renewed = make_rule(groups, ["leases"], ["get", "update"])
    return [make_rule(groups, ["leases"], ["create"]), {**renewed, "resourceNames": [lease]}]


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
