"""Validation by kind: which rules hold for an object, on create and on update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from phalanx.local.validation.errors import FieldError, type_invalid
from phalanx.local.validation.kinds import kind_type
from phalanx.local.validation.metadata import validate_metadata

Rule = Callable[[list[FieldError], dict[str, Any], dict[str, Any] | None, str], None]


def validate(
    group: str, kind: str, obj: dict[str, Any], old: dict[str, Any] | None, subresource: str = ""
) -> list[FieldError]:
    """Everything that is wrong with an object, in document order; [] when it may be stored.

    ``old`` is the stored object for an update, None for a create. ``group`` is "" for the core group. For kinds
    that are not built in only the metadata is checked.
    """
    meta = obj.get("metadata")
    if not isinstance(meta, dict):
        return [type_invalid("metadata", meta, "must be an object")]
    errors: list[FieldError] = []
    old_meta = (old.get("metadata") or {}) if old is not None else None
    validate_metadata(errors, group, kind, meta, old_meta, builtin=kind_type(group, kind) is not None)
    rule = RULES.get((group, kind))
    if rule is not None:
        rule(errors, obj, old, subresource)
    return errors


RULES: Final[dict[tuple[str, str], Rule]] = {}
