"""Base strategy of all kinds, and the context of a write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from phalanx_local.errors import FieldCause
from phalanx_local.objects import Json

if TYPE_CHECKING:
    from phalanx_local.admission.webhook_calls import WebhookAnswers
    from phalanx_local.authorization.requester import Requester


class Cluster(Protocol):
    """Read access to stored objects, for admission."""

    def find(self, group: str, plural: str, namespace: str, name: str) -> Json | None:
        """Return the stored object; None if it does not exist."""

    def exists(self, group: str, plural: str, namespace: str, name: str) -> bool:
        """Return whether an object exists, without decoding it."""

    def all(self, group: str, plural: str, namespace: str = "") -> list[Json]:
        """Return every stored object of a resource, in the order of namespace and name."""


@dataclass(slots=True)
class Write:
    """Context of a write: time (`now`, a metav1.Time), user, and `warnings`, which collects Warning headers.

    `requester` is None for writes of the server itself, which need no authorization. `answers` are those of
    webhooks, None if webhooks are not called; `admitted` identifies the object after the mutating webhooks.
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
    """Strategy with the generic behaviour of writes, which kinds override. Instances have no state about
    objects."""

    returns_deleted: ClassVar[bool] = False
    unconditional_update: ClassVar[bool] = True
    create_on_update: ClassVar[bool] = False
    counts_generation: bool = False
    status_keeps_metadata: ClassVar[bool] = False
    orphans_by_default: ClassVar[bool] = False
    field_labels: ClassVar[frozenset[str]] = frozenset()

    def fields(self, obj: Json) -> dict[str, str]:
        """Return the object's fields for field selectors besides metadata.name and metadata.namespace, as a new
        dict."""
        return {}

    def prepare_create(self, obj: Json, write: Write) -> None:
        """Set the defaults of a new object and admit it, in place; can raise StatusError."""

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        """Set the defaults of a changed object and admit it, in place; its status is the old status already."""

    def prepare_status(self, obj: Json, old: Json, write: Write) -> None:
        """Admit a write of the status, in place; all other fields have their old values already."""

    def prepare_delete(self, obj: Json) -> None:
        """Change an object when its deletion starts, in place."""

    def check(self, obj: Json, old: Json | None, subresource: str) -> list[FieldCause]:
        """Return the errors of an object by rules beyond phalanx_local.validation."""
        return []

    def initial_status(self, obj: Json, write: Write) -> Json | None:
        """Return the status of a new object of a kind with the status subresource; None for no status."""
        return None

    def grace_period(self, obj: Json, asked: int | None) -> int | None:
        """Return the grace period of a deletion in seconds; None for kinds that are removed at once."""
        return None


class SpecStrategy(RestStrategy):
    """Strategy of a kind with a spec whose changes increase metadata.generation."""

    counts_generation = True
