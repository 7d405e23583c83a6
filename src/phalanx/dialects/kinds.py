"""Kinds of custom objects: which we look for, and which of them a server has."""

from __future__ import annotations

import msgspec


class ServedKind(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """A kind that is watched, in the version that discovery chose."""

    group: str
    version: str
    plural: str
    kind: str = "PodGroup"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"


class WantedKind(msgspec.Struct, frozen=True):
    """A kind to look for by discovery; `versions` in order of preference."""

    group: str
    plural: str
    kind: str
    versions: tuple[str, ...]

    def served_as(self, version: str) -> ServedKind:
        return ServedKind(self.group, version, self.plural, self.kind)
