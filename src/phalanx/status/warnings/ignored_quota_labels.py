"""Warnings about pods that name another quota than the one they are charged to."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.dialects.pods.decoder import QUOTA_NAME
from phalanx.dialects.quotas.namespaces import QUOTAS
from phalanx.dialects.warnings import ObjectRef, ObjectWarning
from phalanx.model.account import Tree
from phalanx.model.decisions import Bind
from phalanx.model.text.decoding import legible
from phalanx.status.warnings.ignored_protection import told_about

CODE = "QuotaLabelIgnored"


def ignored_quota_labels(state: ClusterState, binds: Iterable[Bind]) -> list[ObjectWarning]:
    """Return one warning per bound pod or PodGroup whose quota label names a quota other than the one it is charged
    to. The label has no effect unless the cluster has quotas of that dialect."""
    found: dict[ObjectRef, ObjectWarning] = {}
    for bind in binds:
        record = state.pods.get(bind.uid)
        if record is not None and (message := ignored_quota(state, record)):
            about, _ = told_about(record)
            found.setdefault(about, ObjectWarning(about, "Warning", CODE, message))
    return list(found.values())


def ignored_quota(state: ClusterState, record: PodRecord) -> str:
    """Return the reason why a pod is not charged to the quota that it names, and the fix; "" if it is."""
    pod, charge_path = record.pod, record.charge_path
    if not pod.quota:
        return ""
    path = charge_path.path if charge_path is not None else ()
    charged = next((account for account in path if account.key.tree is Tree.KOORDINATOR), None)
    if charged is None or charged.key.name == pod.quota:
        return ""
    quotas = (
        account.key.name for account in state.ledger.accounts.values() if account.key.tree is Tree.KOORDINATOR
    )
    named, where = legible(pod.quota), f"{charged.label} is charged for it"
    if pod.quota not in quotas:
        return f"pod {pod.key}: label {QUOTA_NAME} names quota {named}, which does not exist; {where}"
    return (
        f"pod {pod.key}: label {QUOTA_NAME} names quota {named}, which is not for pods of namespace "
        f"{pod.namespace}; {where}; remove the label, or have an administrator add the quota to annotation "
        f"{QUOTAS} of the namespace"
    )
