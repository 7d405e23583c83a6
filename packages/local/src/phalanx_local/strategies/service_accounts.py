"""Service accounts: each pod runs as a service account of its namespace."""

from __future__ import annotations

from typing import Final

from phalanx_local.errors import forbidden
from phalanx_local.objects import Json, mapping, text
from phalanx_local.strategies.base import RestStrategy, Write


class ServiceAccountStrategy(RestStrategy):
    """Strategy of ServiceAccounts."""

    returns_deleted = True


class _Pods:
    group: Final = ""
    plural: Final = "pods"
    kind: Final = "Pod"


def admit_service_account(obj: Json, write: Write) -> None:
    """Set the namespace's default service account if the pod names none; raise 403 if the account does not
    exist."""
    spec, meta = mapping(obj.get("spec")), mapping(obj.get("metadata"))
    name = text(spec.get("serviceAccountName")) or "default"
    namespace = text(meta.get("namespace"))
    if not write.cluster.exists("", "serviceaccounts", namespace, name):
        message = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise forbidden(_Pods(), text(meta.get("name")), message)
    spec["serviceAccountName"] = spec["serviceAccount"] = name
