"""Kinds of custom objects: kinds to discover, and kinds that the API server serves."""

from __future__ import annotations

import msgspec


class ServedKind(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """A watched kind, in the version that discovery selected."""

    group: str
    version: str
    plural: str
    kind: str = "PodGroup"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"


class WantedKind(msgspec.Struct, frozen=True):
    """A kind of custom objects to discover; `versions` in order of preference."""

    group: str
    plural: str
    kind: str
    versions: tuple[str, ...]

    def served_as(self, version: str) -> ServedKind:
        return ServedKind(self.group, version, self.plural, self.kind)
