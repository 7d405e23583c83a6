"""Strategies of RBAC roles and bindings: defaults of subjects, and the privilege escalation check."""

from __future__ import annotations

from phalanx_local.authorization.escalation import check_binding, check_role
from phalanx_local.authorization.rbac import GROUP
from phalanx_local.objects import Json, mapping, sequence
from phalanx_local.strategies.base import RestStrategy, Write


class RoleStrategy(RestStrategy):
    """Strategy of Roles and ClusterRoles."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def prepare_create(self, obj: Json, write: Write) -> None:
        obj.setdefault("rules", [])
        check_role(write.requester, self._kind, obj, None)

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        obj.setdefault("rules", [])
        check_role(write.requester, self._kind, obj, old)


class BindingStrategy(RestStrategy):
    """Strategy of RoleBindings and ClusterRoleBindings."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def prepare_create(self, obj: Json, write: Write) -> None:
        _default(obj)
        check_binding(write.requester, self._kind, obj, None)

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        _default(obj)
        check_binding(write.requester, self._kind, obj, old)


def _default(binding: Json) -> None:
    reference = mapping(binding.get("roleRef"))
    if reference and not reference.get("apiGroup"):
        reference["apiGroup"] = GROUP
    for subject in sequence(binding.get("subjects")):
        if isinstance(subject, dict) and subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = GROUP
