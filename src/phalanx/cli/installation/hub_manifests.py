"""Manifests of `phalanx install --hub` for the hub's cluster and of `--member` for a member cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import resources

from phalanx.cli.installation.manifests import (
    RBAC,
    Manifest,
    account_with_rights,
    lease_rules,
    make_binding,
    make_object,
    make_rule,
    read_definition,
)
from phalanx.dialects.api_groups import PHALANX
from phalanx.dialects.dialect import READ
from phalanx.dialects.dispatched import HUB_LEASE
from phalanx.dialects.registry import Dialects
from phalanx.hub.data_objects import DATA_LOADS, DATA_SETS_OF_FLUID, DATA_SOURCE_CLAIMS, DATA_SOURCES
from phalanx.hub.jobs.kinds import JOB_KINDS, REFUSED_KINDS
from phalanx.hub.names import GROUP_KINDS, LEASE_NAMESPACE, QUEUES

#: Service account of the hub, in its own cluster and in each member cluster.
ACCOUNT = "phalanx-hub"
#: Lease name of `phalanx hub --leader-elect` (HubOptions).
LEADER_LEASE = "phalanx-hub-leader"


def hub_definitions() -> list[Manifest]:
    """Return the CustomResourceDefinitions of MemberCluster and Dispatch."""
    folder = resources.files("phalanx.dialects").joinpath("crds/hub")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    return [read_definition(file.read_text(encoding="utf-8")) for file in files]


def hub_access(namespace: str) -> list[Manifest]:
    """Return the hub's service account with rights on gangs, pod statuses, its own records, and the Secrets of its
    namespace."""
    own = [make_rule([""], ["secrets"], ["get"]), *lease_rules(LEADER_LEASE)]
    groups = [kind.resource.group for kind in GROUP_KINDS]
    rules = [
        make_rule([""], ["pods"], READ),
        make_rule([""], ["pods/status"], ["patch"]),
        {**make_rule([""], ["namespaces"], ["get"]), "resourceNames": [LEASE_NAMESPACE]},
        make_rule(groups, ["podgroups"], READ),
        *_job_rules(READ, ["update"]),
        *(make_rule([kind.group], [kind.plural], READ) for kind in REFUSED_KINDS),
        make_rule(["events.k8s.io"], ["events"], ["create", "patch"]),
        make_rule([PHALANX], ["dispatches"], [*READ, "create", "delete", "patch"]),
        make_rule([PHALANX], ["dispatches/status"], ["update"]),
        make_rule([PHALANX], ["memberclusters"], READ),
        make_rule([QUEUES.group], [QUEUES.plural], READ),
        # Location of the gangs' data sets, and whether they are loaded.
        make_rule([DATA_SOURCES.group], [DATA_SOURCES.plural, DATA_SOURCE_CLAIMS.plural], READ),
        make_rule([DATA_LOADS.group], [DATA_LOADS.plural, DATA_SETS_OF_FLUID.plural], READ),
        make_rule([PHALANX], ["memberclusters/status"], ["patch"]),
    ]
    return [
        make_object("v1", "Namespace", namespace),
        *account_with_rights(ACCOUNT, namespace, rules, (namespace, own)),
        *_viewers(),
    ]


def _job_rules(verbs: Sequence[str], on_status: Sequence[str] = ()) -> Iterator[Manifest]:
    """Yield access rules per API group for jobs that the hub dispatches as a whole."""
    plurals: dict[str, list[str]] = {}
    for kind in JOB_KINDS:
        plurals.setdefault(kind.resource.group, []).append(kind.resource.plural)
    for group, names in plurals.items():
        yield make_rule([group], names, verbs)
        if on_status:
            yield make_rule([group], [f"{name}/status" for name in names], on_status)


def _viewers() -> Iterator[Manifest]:
    """Yield a role with which viewers of pods can also view Dispatches. Only the hub writes Dispatches."""
    role = make_object(
        f"{RBAC}/v1", "ClusterRole", "phalanx-dispatches-view", rules=[make_rule([PHALANX], ["dispatches"], READ)]
    )
    role["metadata"]["labels"][f"{RBAC}/aggregate-to-view"] = "true"
    yield role


def member_access(namespace: str) -> list[Manifest]:
    """Return the hub's service account in a member cluster, with rights on copies, the hub's lease, and the objects
    of a forecast.

    It cannot read Secrets or grant rights.
    """
    lease = [
        *lease_rules(HUB_LEASE),
        # Records of promised starts and of past usage.
        make_rule([""], ["configmaps"], READ),
    ]
    groups = [kind.resource.group for kind in GROUP_KINDS]
    rules = [
        make_rule([""], ["pods"], [*READ, "create", "delete", "patch"]),
        make_rule(groups, ["podgroups"], [*READ, "create", "delete"]),
        *_job_rules([*READ, "create", "delete", "patch"]),
        *member_reading(),
    ]
    return [
        make_object("v1", "Namespace", namespace),
        *account_with_rights(ACCOUNT, namespace, rules, (LEASE_NAMESPACE, lease)),
    ]


#: Service account of the external MultiKueue dispatcher.
MULTIKUEUE_ACCOUNT = "phalanx-multikueue"


def multikueue_access(namespace: str, kueue_namespace: str = "kueue-system") -> list[Manifest]:
    """Return the dispatcher's service account in the manager cluster of MultiKueue, with rights on Workloads,
    cluster settings and kubeconfigs."""
    subject = {"kind": "ServiceAccount", "name": MULTIKUEUE_ACCOUNT, "namespace": namespace}
    checks = ["admissionchecks", "multikueueconfigs", "multikueueclusters"]
    rules = [
        make_rule(["kueue.x-k8s.io"], ["workloads", *checks], READ),
        make_rule(["kueue.x-k8s.io"], ["workloads/status"], ["patch"]),
        make_rule(["events.k8s.io"], ["events"], ["create", "patch"]),
    ]
    own = lease_rules(MULTIKUEUE_ACCOUNT)
    secrets = [make_rule([""], ["secrets"], ["get"])]
    name = MULTIKUEUE_ACCOUNT
    return [
        make_object("v1", "Namespace", namespace),
        *account_with_rights(name, namespace, rules, (namespace, own)),
        make_object(f"{RBAC}/v1", "Role", f"{name}-kubeconfigs", kueue_namespace, rules=secrets),
        make_binding("Role", f"{name}-kubeconfigs", subject, kueue_namespace),
    ]


def member_reading() -> Iterator[Manifest]:
    """Yield the read rules that a forecast in a member cluster needs, without pods and their groups."""
    yield make_rule([""], ["nodes", "namespaces", "resourcequotas"], READ)
    yield make_rule([""], ["persistentvolumes", "persistentvolumeclaims"], READ)
    yield make_rule([""], ["services", "replicationcontrollers"], READ)
    yield make_rule(["apps"], ["replicasets", "statefulsets"], READ)
    storage = ["storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"]
    yield make_rule(["storage.k8s.io"], storage, READ)
    yield make_rule(
        ["resource.k8s.io"], ["deviceclasses", "devicetaintrules", "resourceslices", "resourceclaims"], READ
    )
    yield make_rule(["policy"], ["poddisruptionbudgets"], READ)
    yield make_rule(["scheduling.k8s.io"], ["priorityclasses"], READ)
    yield make_rule([PHALANX], ["maintenancewindows", "reservations"], READ)
    for plural, group in sorted((plural, group) for group, plural in Dialects().groups):
        yield make_rule([group], [plural], READ)
    for group, plurals in (("scheduling.volcano.sh", ["queues"]), ("topology.volcano.sh", ["hypernodes"])):
        yield make_rule([group], plurals, READ)
    yield make_rule(["scheduling.sigs.k8s.io", "scheduling.x-k8s.io"], ["elasticquotas"], READ)
