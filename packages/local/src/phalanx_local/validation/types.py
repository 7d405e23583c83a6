"""Types of a Kubernetes object's fields, and the merge rules of its lists and maps.

One small model serves three purposes: strict field checks (existing names), strategic merge patches (merge keys)
and field ownership (lists as maps or sets, atomic values). Built-in kinds are read from the tables in ``kinds/``;
custom resources are derived from their OpenAPI schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Form = Literal["scalar", "struct", "map", "list", "any"]


class Absent:
    """Marker for a field that is absent in the empty form of an object."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<absent>"


ABSENT: Final = Absent()


@dataclass(slots=True, eq=False)
class FieldType:
    """Type of one value in a Kubernetes object.

    ``scalar`` names the scalar type (string, int32, int64, bool, float, quantity, intOrString, time, microtime,
    duration, bytes); a ``struct`` has named ``fields`` (and, if ``element`` is set, unnamed ones too); a ``map``
    and a ``list`` have an ``element``; ``any`` is untyped JSON: its maps merge by key, its lists are atomic.
    """

    form: Form
    scalar: str = ""
    fields: dict[str, StructField] = field(default_factory=dict)
    element: FieldType | None = None
    atomic: bool = False
    keys: tuple[str, ...] = ()
    key_defaults: Mapping[str, Any] = field(default_factory=dict)
    is_set: bool = False
    patch_merge: bool = False
    patch_key: str = ""

    @property
    def associative(self) -> bool:
        """Whether the items of this list type have an identity (a key or their own value)."""
        return bool(self.keys) or self.is_set

    def child(self, name: str) -> FieldType:
        """Return the type of a map's or struct's entry; unknown names are untyped."""
        member = self.fields.get(name)
        if member is not None:
            return member.type
        return self.element or ANY


@dataclass(slots=True, eq=False)
class StructField:
    """Named field of a struct.

    ``empty`` is the value of this field in an otherwise empty object (`ABSENT` for most): a struct that Go embeds
    by value is always present, so creating its fields does not create the struct itself. ``patch_replace`` is the
    field's strategic-merge strategy.
    """

    type: FieldType
    empty: Any = ABSENT
    patch_replace: bool = False


ANY: Final = FieldType("any")
STRING: Final = FieldType("scalar", scalar="string")
