"""Cards that the annotations of a bound pod name, in the formats of the device plugins.

The used amount of each card follows from the pod's requests, so the amounts in the annotations are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.model.devices import device_words as words
from phalanx.model.devices.cards import Family
from phalanx.model.text.decoding import decode_json

RESULT_KEYS = (words.VGPU_IDS, words.GPU_INDEX, words.DEVICE_ALLOCATED)


def cards_named(family: Family, annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPU ids in a pod's device-plugin annotations, in the order of its containers; unreadable
    annotations name none."""
    match family:
        case Family.VGPU:
            parts = annotations.get(words.VGPU_IDS, "").replace(";", ":").split(":")
            # A part of a divided card is named after the card: `GPU-1[...]`.
            return tuple(part.split(",")[0].split("[")[0] for part in parts if part.count(",") >= 3)
        case Family.GPU_SHARE:
            listed = annotations.get(words.GPU_INDEX, "").split(",")
            return tuple(sorted({part.strip() for part in listed} - {""}))
        case Family.KOORDINATOR:
            return _minors(annotations.get(words.DEVICE_ALLOCATED, ""))


def _minors(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        entries = decode_json(text, dict[str, list[dict[str, Any]]]).get("gpu", [])
    except msgspec.DecodeError:
        return ()
    minors = (entry.get("minor") for entry in entries)
    return tuple(str(minor) for minor in minors if type(minor) is int and 0 <= minor < _MOST_CARDS)


_MOST_CARDS = 1024
