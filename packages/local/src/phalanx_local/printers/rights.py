"""`kubectl get` columns of roles, bindings, quotas and runtime classes."""

from __future__ import annotations

from typing import Any

from phalanx_local.objects import Json, mapping, metadata, sequence, text
from phalanx_local.printers.base import AGE, NAME, Printer, age, column


def _role(role: Json, now: float) -> list[Any]:
    meta = metadata(role)
    return [meta.get("name", ""), text(meta.get("creationTimestamp"))]


ROLE_PRINTER = Printer((NAME, column("Created At")), _role)


def _binding(binding: Json, now: float) -> list[Any]:
    reference = mapping(binding.get("roleRef"))
    names: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for item in sequence(binding.get("subjects")):
        subject = mapping(item)
        kind, name = text(subject.get("kind")), text(subject.get("name"))
        if kind == "ServiceAccount":
            name = f"{text(subject.get('namespace'))}/{name}"
        names.setdefault(kind, []).append(name)
    return [
        metadata(binding).get("name", ""),
        f"{text(reference.get('kind'))}/{text(reference.get('name'))}",
        age(binding, now),
        *(", ".join(names[kind]) for kind in ("User", "Group", "ServiceAccount")),
    ]


BINDING_PRINTER = Printer(
    (
        NAME,
        column("Role"),
        AGE,
        column("Users", priority=1),
        column("Groups", priority=1),
        column("ServiceAccounts", priority=1),
    ),
    _binding,
)


def _quota(quota: Json, now: float) -> list[Any]:
    status = mapping(quota.get("status"))
    hard, used = mapping(status.get("hard")), mapping(status.get("used"))
    shown = [(name, f"{name}: {used.get(name, '0')}/{amount}") for name, amount in sorted(hard.items())]
    limits = ", ".join(pair for name, pair in shown if name.startswith("limits."))
    requests = ", ".join(pair for name, pair in shown if not name.startswith("limits."))
    return [metadata(quota).get("name", ""), requests, limits, age(quota, now)]


QUOTA_PRINTER = Printer((NAME, column("Request"), column("Limit"), AGE), _quota)


def _runtime_class(item: Json, now: float) -> list[Any]:
    return [metadata(item).get("name", ""), text(item.get("handler")), age(item, now)]


RUNTIME_CLASS_PRINTER = Printer((NAME, column("Handler"), AGE), _runtime_class)
