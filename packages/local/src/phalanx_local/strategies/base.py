"""The strategy that every kind has, and the context in which it is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from phalanx_local.errors import FieldCause
from phalanx_local.objects import Json

if TYPE_CHECKING:
    from phalanx_local.admission.webhook_calls import WebhookAnswers
    from phalanx_local.authorization.requester import Requester


class Cluster(Protocol):
    """What admission may look at beyond the object itself."""

    def find(self, group: str, plural: str, namespace: str, name: str) -> Json | None:
        """The stored object, or None."""

    def exists(self, group: str, plural: str, namespace: str, name: str) -> bool:
        """Whether an object exists, without decoding it."""

    def all(self, group: str, plural: str, namespace: str = "") -> list[Json]:
        """Every stored object of a resource, in key order."""


@dataclass(slots=True)
class Write:
    """The circumstances of a write; `now` is a metav1.Time, `warnings` collects Warning headers.

    `requester` is None where the server itself writes, which nobody has to allow. `answers` are those that webhooks
    have given, None where they are not asked; `admitted` identifies the object as mutating webhooks left it.
    """

    now: str
    cluster: Cluster
    user: str = "system:admin"
    manager: str = "unknown"
    dry_run: bool = False
    field_validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)
    track_fields: bool = False
    requester: Requester | None = None
    answers: WebhookAnswers | None = None
    admitted: str = ""


class RestStrategy:
    """Generic behaviour; a kind overrides what it does otherwise. Instances hold no state of objects."""

    returns_deleted: ClassVar[bool] = False
    unconditional_update: ClassVar[bool] = True
    create_on_update: ClassVar[bool] = False
    counts_generation: bool = False
    status_keeps_metadata: ClassVar[bool] = False
    orphans_by_default: ClassVar[bool] = False
    field_labels: ClassVar[frozenset[str]] = frozenset()

    def fields(self, obj: Json) -> dict[str, str]:
        """The selectable fields beyond metadata.name and metadata.namespace; a new dict."""
        return {}

    def prepare_create(self, obj: Json, write: Write) -> None:
        """Defaults and admission of a new object, in place; may raise StatusError."""

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        """Defaults and admission of a changed object, in place; the status is already the old one."""

    def prepare_status(self, obj: Json, old: Json, write: Write) -> None:
        """Admission of a status write, in place; everything but the status is already the old one."""

    def prepare_delete(self, obj: Json) -> None:
        """What a deletion adds to the object before it takes effect, in place."""

    def check(self, obj: Json, old: Json | None, subresource: str) -> list[FieldCause]:
        """Rules beyond phalanx_local.validation."""
        return []

    def initial_status(self, obj: Json, write: Write) -> Json | None:
        """The status of a new object whose kind has the status subresource; None for none."""
        return None

    def grace_period(self, obj: Json, asked: int | None) -> int | None:
        """Seconds that a deletion leaves the object its life, or None for kinds that go at once."""
        return None


class SpecStrategy(RestStrategy):
    """A kind with a spec whose changes are counted in metadata.generation."""

    counts_generation = True
