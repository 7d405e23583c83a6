"""Interfaces of the admission steps that the API calls before it stores a written object (see admission/)."""

from __future__ import annotations

from typing import Protocol

from phalanx_local.objects import Json
from phalanx_local.registry.resources import Version
from phalanx_local.strategies.base import Write


class Admission(Protocol):
    """Validating admission policies (`AdmissionPolicies`), called before an object is stored. `admit` raises the
    rejection."""

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
    """Admission webhooks (`Webhooks`), which change or validate a written object."""

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
