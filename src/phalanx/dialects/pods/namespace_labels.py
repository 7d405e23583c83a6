"""The labels of namespaces, by which pods select the namespaces of others."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.dialects.enricher import Facet, News, nothing
from phalanx.model.events import NamespaceLabelled


class NamespaceLabels(Facet):
    """Tells each change once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[str, str], ...]] = {}

    def namespace(self, name: str, labels: Mapping[str, str] | None) -> News:
        now = tuple(sorted(labels.items())) if labels else ()
        if self._known.get(name, ()) == now:
            return nothing()
        if now:
            self._known[name] = now
        else:
            del self._known[name]
        return [NamespaceLabelled(name, now)], set()
