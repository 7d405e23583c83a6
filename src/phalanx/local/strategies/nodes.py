"""Nodes."""

from __future__ import annotations

from phalanx.local.objects import Json, mapping
from phalanx.local.strategies.base import Strategy, Write


class NodeStrategy(Strategy):
    """v1 Node. A node that states only its capacity offers all of it, as a kubelet without reservations does."""

    status_keeps_metadata = True
    field_labels = frozenset(("spec.unschedulable",))

    def fields(self, obj: Json) -> dict[str, str]:
        unschedulable = mapping(obj.get("spec")).get("unschedulable") is True
        return {"spec.unschedulable": "true" if unschedulable else "false"}

    def prepare_create(self, obj: Json, write: Write) -> None:
        obj.setdefault("spec", {})
        self._default_allocatable(obj)

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        obj.setdefault("spec", {})

    def prepare_status(self, obj: Json, old: Json, write: Write) -> None:
        self._default_allocatable(obj)

    def initial_status(self, obj: Json, write: Write) -> Json | None:
        # Unlike most kinds a node may be created with its status: the kubelet registers so.
        status = obj.get("status")
        return status if isinstance(status, dict) else {}

    @staticmethod
    def _default_allocatable(obj: Json) -> None:
        status = mapping(obj.get("status"))
        capacity = status.get("capacity")
        if isinstance(capacity, dict) and "allocatable" not in status:
            status["allocatable"] = dict(capacity)
