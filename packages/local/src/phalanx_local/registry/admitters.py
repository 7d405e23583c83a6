"""Interfaces of the admission steps that the API calls before it stores a write (see admission/)."""

from __future__ import annotations

from typing import Protocol

from phalanx_local.objects import Json
from phalanx_local.registry.resources import Version
from phalanx_local.strategies.base import Write


class Admission(Protocol):
    """Validating policies that admit a write before it is stored (`AdmissionPolicies`). `admit` raises the
    rejection.
    """

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
    """Admission webhooks that mutate or validate a write (`Webhooks`)."""

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
