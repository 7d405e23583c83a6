"""`conformance`: what keeps the cluster alive is never evicted.

A veto on victims; it speaks when actions that evict are active.
"""

from __future__ import annotations

from phalanx.scheduling.plugin import Plugin


class Conformance(Plugin):
    name = "conformance"
