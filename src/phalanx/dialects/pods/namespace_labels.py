"""Labels of namespaces, which namespace selectors of pods match."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.dialects.enricher import Changes, PodEnricher, no_changes
from phalanx.model.events import NamespaceLabelled


class NamespaceLabels(PodEnricher):
    """Publishes each change of a namespace's labels once, for the namespace selectors of pods."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[str, str], ...]] = {}

    def namespace(self, name: str, labels: Mapping[str, str] | None) -> Changes:
        now = tuple(sorted(labels.items())) if labels else ()
        if self._known.get(name, ()) == now:
            return no_changes()
        if now:
            self._known[name] = now
        else:
            del self._known[name]
        return [NamespaceLabelled(name, now)], set()
