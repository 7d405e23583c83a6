"""Kinds and keys of other schedulers' systems that Phalanx does not read, with their migration findings, as data.

Keys and fields that a reader acts on take precedence (`readers.py`); their entries here are unused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from phalanx.dialects.gangs.extras import PREFERRED_LEVEL, REQUIRED_LEVEL, SLA_WAITING_TIME
from phalanx.reports.migration.findings import MigrationVerdict

VOLCANO, SCHEDULER_PLUGINS, KOORDINATOR, KAI, KUEUE = "Volcano", "scheduler-plugins", "Koordinator", "KAI", "Kueue"
SYSTEMS = (VOLCANO, SCHEDULER_PLUGINS, KOORDINATOR, KAI, KUEUE)

_W, _C, _N = MigrationVerdict.WORKS, MigrationVerdict.CHANGE, MigrationVerdict.NOT_HONOURED
Said = tuple[MigrationVerdict, str]


class ForeignKind(msgspec.Struct, frozen=True):
    """Kind of another scheduler's system. `fields` map a field to the finding for it and everything below; "spec"
    covers all unlisted fields.

    With `copies_owner` the templates are copies of the owner's templates.
    """

    plural: str
    versions: tuple[str, ...]
    fields: Mapping[str, Said]
    namespaced: bool = True
    copies_owner: bool = False


_KEPT: Said = (_W, "Kueue's own controller acts on it; keep it running: it admits, Phalanx places")

FOREIGN_KINDS: Mapping[tuple[str, str], ForeignKind] = {
    **{
        ("kueue.x-k8s.io", kind): ForeignKind(
            plural, ("v1beta2", "v1beta1", "v1alpha1"), {"spec": _KEPT}, spaced, kind == "Workload"
        )
        for kind, plural, spaced in (
            ("ClusterQueue", "clusterqueues", False),
            ("LocalQueue", "localqueues", True),
            ("Cohort", "cohorts", False),
            ("ResourceFlavor", "resourceflavors", False),
            ("Topology", "topologies", False),
            ("Workload", "workloads", True),
            ("AdmissionCheck", "admissionchecks", False),
            ("WorkloadPriorityClass", "workloadpriorityclasses", False),
        )
    },
    ("scheduling.volcano.sh", "NamespaceQueue"): ForeignKind(
        "namespacequeues",
        ("v1beta1", "v1alpha1"),
        {
            "spec": (
                _N,
                "write a Queue, annotate the namespace with scheduling.volcano.sh/queue-name, and grant the right "
                "`use` on the queue to the users of the namespace (docs/queues.md)",
            )
        },
    ),
    ("scheduling.run.ai", "Queue"): ForeignKind(
        "queues",
        ("v2",),
        {
            "spec": (_N, "Phalanx has no equivalent"),
            "spec.displayName": (_C, "the new Queue has the name of the object"),
            "spec.parentQueue": (_C, "spec.parent of a Queue of scheduling.volcano.sh"),
            "spec.priority": (_C, "spec.priority of a Queue of scheduling.volcano.sh"),
            "spec.preemptMinRuntime": (_C, "the annotation phalanx.dev/min-run-time, which is one for both"),
            "spec.reclaimMinRuntime": (_C, "the annotation phalanx.dev/min-run-time, which is one for both"),
            "spec.resources.cpu.quota": (_C, "spec.deserved.cpu"),
            "spec.resources.cpu.limit": (_C, "spec.capability.cpu"),
            "spec.resources.memory.quota": (_C, "spec.deserved.memory"),
            "spec.resources.memory.limit": (_C, "spec.capability.memory"),
            "spec.resources.gpu.quota": (_C, "spec.deserved[nvidia.com/gpu], in whole GPUs"),
            "spec.resources.gpu.limit": (_C, "spec.capability[nvidia.com/gpu], in whole GPUs"),
            "spec.resources.cpu.overQuotaWeight": (_N, "one spec.weight counts for all resources of a Queue"),
            "spec.resources.memory.overQuotaWeight": (_N, "one spec.weight counts for all resources of a Queue"),
            "spec.resources.gpu.overQuotaWeight": (_C, "spec.weight, for all resources"),
        },
        False,
    ),
    ("scheduling.run.ai", "PodGroup"): ForeignKind(
        "podgroups",
        ("v2alpha2",),
        {
            "spec": (_N, "Phalanx has no equivalent"),
            "spec.minMember": (_C, "spec.minMember of a PodGroup of scheduling.volcano.sh"),
            "spec.queue": (_C, "spec.queue of a PodGroup of scheduling.volcano.sh"),
            "spec.priorityClassName": (_C, "spec.priorityClassName of a PodGroup of scheduling.volcano.sh"),
            "spec.preemptibility": (_C, "the label volcano.sh/preemptable"),
            "spec.minSubGroup": (_N, "write CompositePodGroups (docs/native-gangs.md)"),
            "spec.subGroups": (_N, "write spec.subGroupPolicy of Volcano's PodGroup, or CompositePodGroups"),
            "spec.topologyConstraint": (_N, "write spec.networkTopology and HyperNodes (docs/topology.md)"),
            "spec.markUnschedulable": (_W, "pods always receive the message"),
            "spec.schedulingBackoff": (_W, "a group is retried after each helpful change"),
        },
    ),
    ("scheduling.run.ai", "BindRequest"): ForeignKind(
        "bindrequests", ("v1alpha2",), {"spec": (_W, "created and deleted by KAI itself; nothing to migrate")}
    ),
    ("kai.scheduler", "Topology"): ForeignKind(
        "topologies", ("v1alpha1",), {"spec": (_N, "write HyperNodes (docs/topology.md)")}, False
    ),
    ("kai.scheduler", "SchedulingShard"): ForeignKind(
        "schedulingshards",
        ("v1",),
        {"spec": (_N, "one scheduler per pool of nodes: several `phalanx scheduler` with names of their own")},
        False,
    ),
    ("config.koordinator.sh", "ClusterColocationProfile"): ForeignKind(
        "clustercolocationprofiles",
        ("v1alpha1",),
        {"spec": (_W, "koord-manager's webhook acts on it at pod creation; keep it")},
        False,
    ),
    ("scheduling.koordinator.sh", "PodMigrationJob"): ForeignKind(
        "podmigrationjobs",
        ("v1alpha1",),
        {
            "spec": (
                _N,
                "used by koord-descheduler only; in Phalanx `phalanx defrag` and the action shuffle move pods",
            )
        },
        False,
    ),
    ("scheduling.koordinator.sh", "ClusterNetworkTopology"): ForeignKind(
        "clusternetworktopologies", ("v1alpha1",), {"spec": (_N, "write HyperNodes (docs/topology.md)")}, False
    ),
}

_ENTRY = re.compile(r"\[[0-9]+\]")

# Keys of pods and groups. A key that ends in `/` covers all keys of that domain.
# Fields of kinds that Phalanx reads, which no reader acts on.
_FOREIGN_FIELDS: Mapping[str, Said] = {
    "spec.allowedNamespaces": (
        _N,
        "every namespace can use the queue; restrict it by the right `use` on the queue, for the users of these "
        "namespaces, with --queue-rights of the webhook (docs/queues.md)",
    ),
}

_TOLERATION = "preemption-toleration.scheduling.x-k8s.io/"
FOREIGN_KEYS: Mapping[str, Said] = {
    _TOLERATION: (_N, "write phalanx.dev/min-run-time on queues and quotas (docs/quotas.md)"),
    "volcano.sh/last-checkpoint-time": (
        _N,
        "victims are not chosen by their last checkpoint; write phalanx.dev/min-run-time on queues and quotas, or "
        "volcano.sh/cooldown-time on pods",
    ),
    "kueue.x-k8s.io/": (_W, "Kueue's own controller acts on it; keep it running"),
    **dict.fromkeys(
        (
            "volcano.sh/job-name",
            "volcano.sh/job-namespace",
            "volcano.sh/job-version",
            "volcano.sh/job-retry-count",
            "volcano.sh/queue-name",
            "volcano.sh/template-uid",
        ),
        (_W, "the job controller's note for people and selectors; no scheduler acts on it"),
    ),
    "kai.scheduler/queue": (
        _C,
        "write the annotation scheduling.volcano.sh/queue-name, or spec.queue of the PodGroup",
    ),
    "kai.scheduler/subgroup-name": (_N, "write CompositePodGroups (docs/native-gangs.md)"),
    "pod-group-name": (_C, "write the annotation scheduling.k8s.io/group-name"),
    "gpu-fraction": (_C, "write the settings for GPU shares of docs/gpu-sharing.md"),
    "gpu-memory": (_C, "write the settings for GPU shares of docs/gpu-sharing.md"),
    "gpu-fraction-num-devices": (_C, "write the settings for GPU shares of docs/gpu-sharing.md"),
    "gpu-fraction-container-name": (
        _C,
        "write the settings for GPU shares of docs/gpu-sharing.md, in that container",
    ),
    "kai.scheduler/topology": (_C, "remove it: a level names its label itself (docs/topology.md)"),
    "kai.scheduler/topology-required-placement": (_C, f"write {REQUIRED_LEVEL} with the same label of nodes"),
    "kai.scheduler/topology-preferred-placement": (_C, f"write {PREFERRED_LEVEL} with the same label of nodes"),
    "kai.scheduler/": (_N, "Phalanx has no equivalent"),
}

# Keys of a template with an equivalent annotation of Phalanx.
RENAMED_KEYS: Mapping[str, str] = {
    "kai.scheduler/queue": "scheduling.volcano.sh/queue-name",
    "pod-group-name": "scheduling.k8s.io/group-name",
}
# Values that are parsed and not honoured.
_VALUES: Mapping[tuple[str, str], Said] = {
    ("gang.scheduling.koordinator.sh/mode", "NonStrict"): (
        _N,
        "nothing is reserved for a part of a gang: its minimum starts in one step; write Strict (docs/gangs.md)",
    ),
}
# Fields that are always read, and honoured only with this plugin in the policy.
_PLUGINS_OF_FIELDS: Mapping[str, str] = {
    "spec.affinity": "nodegroup",
}

# Owning system of each domain of keys and API groups.
_DOMAINS = (
    ("volcano.sh", VOLCANO),
    ("scheduling.x-k8s.io", SCHEDULER_PLUGINS),
    ("pod-group.scheduling.sigs.k8s.io", SCHEDULER_PLUGINS),
    ("scheduling.sigs.k8s.io", SCHEDULER_PLUGINS),
    ("koordinator.sh", KOORDINATOR),
    ("run.ai", KAI),
    ("kai.scheduler", KAI),
    ("kueue.x-k8s.io", KUEUE),
)
DEFAULT_SCHEDULER = "default-scheduler"
# Default scheduler names of these systems.
SCHEDULER_NAMES: Mapping[str, str] = {
    "volcano": VOLCANO,
    "scheduler-plugins-scheduler": SCHEDULER_PLUGINS,
    "koord-scheduler": KOORDINATOR,
    "kai-scheduler": KAI,
}
_LONE_KEYS: Mapping[str, str] = {
    "pod-group-name": KAI,
    "gpu-fraction": KAI,
    "gpu-memory": KAI,
    "gpu-fraction-num-devices": KAI,
    "gpu-fraction-container-name": KAI,
    **dict.fromkeys((key for key in SLA_WAITING_TIME if "/" not in key), VOLCANO),
    "scheduling.k8s.io/group-name": VOLCANO,
    "scheduling.k8s.io/group-min-member": VOLCANO,
    "pod-group/name": SCHEDULER_PLUGINS,
    "pod-group/min-available": SCHEDULER_PLUGINS,
}


def system_of(word: str) -> str:
    """Return the system (Volcano, KAI, ...) that owns an API group or the key of a label; "" for none of them."""
    if word in _LONE_KEYS:
        return _LONE_KEYS[word]
    domain = word.partition("/")[0]
    return next((name for suffix, name in _DOMAINS if domain == suffix or domain.endswith(f".{suffix}")), "")


def said_of_key(key: str) -> Said | None:
    """Return the migration finding about a label or annotation that no decoder acts on; None for an unknown key."""
    return FOREIGN_KEYS.get(key) or FOREIGN_KEYS.get(key.partition("/")[0] + "/")


def said_of_foreign_field(field: str) -> Said | None:
    """Return the finding about a field of a kind that Phalanx reads, which no reader acts on; None for an unknown
    one."""
    return _FOREIGN_FIELDS.get(_ENTRY.sub("", field))


def is_toleration(key: str) -> bool:
    """Return whether a PriorityClass has this annotation for the plugin PreemptionToleration."""
    return key.startswith(_TOLERATION)


def said_of_value(key: str, value: object) -> Said | None:
    """Return the migration finding about a parsed value that Phalanx does not honour; None for other values."""
    return _VALUES.get((key, value)) if isinstance(value, str) else None


def said_of_policy(field: str) -> str:
    """Return a message about the plugin that the policy needs to honour a field."""
    for prefix, plugin in _PLUGINS_OF_FIELDS.items():
        if field == prefix or field.startswith(f"{prefix}."):
            return f"with the plugin {plugin} in the policy"
    return ""


def said_of_field(kind: ForeignKind, field: str) -> Said:
    """Return the migration finding for the nearest listed ancestor of a field; all entries of a list are treated
    alike."""
    field = _ENTRY.sub("", field)
    while field not in kind.fields and "." in field:
        field = field.rpartition(".")[0]
    return kind.fields.get(field, kind.fields["spec"])
