"""Events: one storage with two views. The core/v1 form is stored; events.k8s.io/v1 is converted in requests."""

from __future__ import annotations

from phalanx_local.errors import FieldCause, required, wrong_value
from phalanx_local.objects import Json, mapping, metadata, text
from phalanx_local.strategies.base import RestStrategy, Write

# core/v1 field -> events.k8s.io/v1 field; `source` is renamed as a whole
_RENAMED = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_BACK = {new: old for old, new in _RENAMED.items()}

_OBJECT_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

# events.k8s.io/v1 field labels -> stored labels
EVENTS_V1_LABELS = {f"regarding.{field}": f"involvedObject.{field}" for field in _OBJECT_FIELDS} | {
    "reportingController": "reportingComponent"
}


class EventStrategy(RestStrategy):
    """Strategy of Events of core/v1 and events.k8s.io/v1."""

    create_on_update = True
    field_labels = frozenset(
        (
            *(f"involvedObject.{field}" for field in _OBJECT_FIELDS),
            "reason",
            "reportingComponent",
            "source",
            "type",
        )
    )

    def fields(self, obj: Json) -> dict[str, str]:
        involved, source = mapping(obj.get("involvedObject")), mapping(obj.get("source"))
        component = text(obj.get("reportingComponent"))
        fields = {f"involvedObject.{field}": text(involved.get(field)) for field in _OBJECT_FIELDS}
        fields["reason"] = text(obj.get("reason"))
        fields["type"] = text(obj.get("type"))
        fields["reportingComponent"] = component
        fields["source"] = text(source.get("component")) or component
        return fields

    def prepare_create(self, obj: Json, write: Write) -> None:
        for field in ("firstTimestamp", "lastTimestamp"):
            obj.setdefault(field, None)
        obj.setdefault("eventTime", None)
        obj.setdefault("source", {})
        obj.setdefault("reportingComponent", "")
        obj.setdefault("reportingInstance", "")

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        self.prepare_create(obj, write)

    def check(self, obj: Json, old: Json | None, subresource: str) -> list[FieldCause]:
        namespace = text(metadata(obj).get("namespace"))
        involved = text(mapping(obj.get("involvedObject")).get("namespace"))
        if old is None and (involved or "default") != namespace:
            return [wrong_value("involvedObject.namespace", involved, "does not match event.namespace")]
        return []


def check_new_event(shown: Json) -> list[FieldCause]:
    """Return the errors of a new Event under the additional rules of events.k8s.io/v1."""
    fields = ("eventTime", "reportingController", "reportingInstance", "action", "reason")
    causes = [required(field) for field in fields if not shown.get(field)]
    if shown.get("type") not in ("Normal", "Warning"):
        causes.append(wrong_value("type", shown.get("type"), "must be Normal or Warning"))
    if len(text(shown.get("note")).encode()) > 1024:
        causes.append(wrong_value("note", "", "can have at most 1024 bytes"))
    return causes


def to_events_v1(stored: Json) -> Json:
    shown = {_RENAMED.get(key, key): value for key, value in stored.items()}
    for field in ("reportingController", "reportingInstance"):
        if not shown.get(field):
            shown.pop(field, None)
    return shown


def from_events_v1(shown: Json) -> Json:
    return {_BACK.get(key, key): value for key, value in shown.items()}
