"""Whom the API asks before it keeps a write (admission/)."""

from __future__ import annotations

from typing import Protocol

from phalanx_local.objects import Json
from phalanx_local.registry.resources import Version
from phalanx_local.strategies.base import Write


class Admission(Protocol):
    """What is asked about a write before it is kept (`AdmissionPolicies`). Raises the refusal."""

    def admit(
        self,
        operation: str,
        version: Version,
        obj: Json | None,
        old: Json | None,
        write: Write,
        *,
        of: tuple[str, str, str],
    ) -> None: ...


class MutatingAdmission(Protocol):
    """Webhooks that may change what is written before it is judged, and those that judge it (`Webhooks`)."""

    @property
    def configured(self) -> bool: ...

    def mutate(
        self,
        operation: str,
        version: Version,
        obj: Json,
        old: Json | None,
        write: Write,
        *,
        of: tuple[str, str, str],
    ) -> Json: ...

    def validate(
        self,
        operation: str,
        version: Version,
        obj: Json | None,
        old: Json | None,
        write: Write,
        *,
        of: tuple[str, str, str],
    ) -> None: ...
