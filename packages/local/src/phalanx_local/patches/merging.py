"""Merge of an applied configuration into a live object (the first half of server-side apply)."""

from __future__ import annotations

from typing import Any

from phalanx_local.patches.fields import item_key, keyed
from phalanx_local.validation.types import ANY, FieldType


def merge(kind: FieldType, live: Any, applied: Any) -> Any:
    """Return the live value merged with the applied value: no field is removed, leaves have the applied value.

    Items of associative lists merge by identity, in the applied order; items of only the live list remain at
    their place. The result shares structure with both inputs.
    """
    if type(applied) is dict and type(live) is dict and not kind.atomic and live and applied:
        merged = dict(live)
        members, element = kind.fields, kind.element or ANY
        for name, item in applied.items():
            current = live.get(name)
            if current is None or current is item:
                merged[name] = item
            else:
                member = members.get(name)
                merged[name] = merge(element if member is None else member.type, current, item)
        return merged
    if type(applied) is list and type(live) is list and kind.associative and live and applied:
        return _merge_list(kind, live, applied)
    if applied is None and type(live) in (dict, list) and live and _tracked(kind, live):
        return live
    if type(applied) in (dict, list) and not applied and type(live) is type(applied) and _tracked(kind, live):
        return live
    return applied


def _tracked(kind: FieldType, value: Any) -> bool:
    return not kind.atomic if type(value) is dict else kind.associative


def _merge_list(kind: FieldType, live: list[Any], applied: list[Any]) -> list[Any]:
    element = kind.element or ANY
    current = keyed(kind, live)
    # Items of a live list with equal keys are ambiguous: the applied item replaces all of them.
    wanted = {
        key: merge(element, current[key][0], items[0]) if len(current.get(key, ())) == 1 else items[0]
        for key, items in keyed(kind, applied).items()
    }
    live_keys = [item_key(kind, item) for item in live]
    applied_keys = list(wanted)
    shared = [key for key in applied_keys if key in current]
    result: list[Any] = []
    placed: set[str] = set()
    left = right = next_shared = 0
    while left < len(live_keys) or right < len(applied_keys):
        if left < len(live_keys):
            key = live_keys[left]
            if key not in wanted:
                result.append(live[left])
                left += 1
                continue
            if key in placed or (next_shared < len(shared) and shared[next_shared] != key):
                # A shared item that the applied order places earlier or later.
                left += 1
                continue
        if right < len(applied_keys):
            key = applied_keys[right]
            right += 1
            result.append(wanted[key])
            placed.add(key)
            if next_shared < len(shared) and shared[next_shared] == key:
                next_shared += 1
    return result
