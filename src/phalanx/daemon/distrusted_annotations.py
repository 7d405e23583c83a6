"""Annotations with the scheduler's keys that the scheduler has not written for this pod."""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

_MOST_COMPLAINTS = 1000


class DistrustedAnnotations:
    """Log of annotations with an invalid signature, one line per namespace and annotation.

    A thousand copied pods do not fill the log. `count` is called each time with the annotation's key.
    """

    def __init__(self, count: Callable[[str], None]) -> None:
        self._count = count
        self._logged: set[tuple[str, str]] = set()

    def record(self, key: str, namespace: str, name: str) -> None:
        """Record that an annotation of a pod is ignored because of its signature."""
        self._count(key)
        if (key, namespace) not in self._logged and len(self._logged) < _MOST_COMPLAINTS:
            self._logged.add((key, namespace))
            log.warning("pod %s/%s: annotation %s ignored: its signature is not of this pod", namespace, name, key)
