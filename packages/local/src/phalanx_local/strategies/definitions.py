"""CustomResourceDefinitions: validation, defaults and status."""

from __future__ import annotations

from typing import Any, Final

from phalanx_local.errors import FieldCause, bad_request, required, unsupported_value, wrong_value
from phalanx_local.objects import Json, mapping, metadata, sequence, text
from phalanx_local.strategies.base import SpecStrategy, Write
from phalanx_local.validation.decoding import malformed
from phalanx_local.validation.names import dns1035_label

CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
# Allowed roots of the paths of the scale subresource; the selector's path is optional.
_SCALE_ROOTS: Final = (
    ("specReplicasPath", (".spec.",)),
    ("statusReplicasPath", (".status.",)),
    ("labelSelectorPath", (".status.", ".spec.")),
)


class DefinitionStrategy(SpecStrategy):
    """Strategy of CustomResourceDefinitions, which are established at once."""

    def prepare_create(self, obj: Json, write: Write) -> None:
        _require_typed_schemas(obj)
        self._default(obj)

    def prepare_delete(self, obj: Json) -> None:
        meta = metadata(obj)
        if "deletionTimestamp" not in meta:
            finalizers = meta.setdefault("finalizers", [])
            if CLEANUP not in finalizers:
                finalizers.append(CLEANUP)

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        _require_typed_schemas(obj)
        self._default(obj)
        status = obj.get("status")
        if isinstance(status, dict):
            stored = [item for item in sequence(status.get("storedVersions")) if isinstance(item, str)]
            version = _storage_version(mapping(obj.get("spec")))
            if version and version not in stored:
                status["storedVersions"] = [*stored, version]
            status["acceptedNames"] = mapping(mapping(obj.get("spec")).get("names"))

    def initial_status(self, obj: Json, write: Write) -> Json:
        spec = mapping(obj.get("spec"))
        taken = _taken_names(obj, spec, write)
        accepted = {
            "type": "NamesAccepted",
            "status": "False" if taken else "True",
            "reason": "MultipleNamesAlreadyInUse" if taken else "NoConflicts",
            "message": f"already in use: {', '.join(taken)}" if taken else "no conflicts found",
            "lastTransitionTime": write.now,
        }
        established = {
            "type": "Established",
            "status": "False" if taken else "True",
            "reason": "NotAccepted" if taken else "InitialNamesAccepted",
            "message": ("not all names are accepted" if taken else "the initial names have been accepted"),
            "lastTransitionTime": write.now,
        }
        return {
            "conditions": [accepted, established],
            "acceptedNames": {} if taken else mapping(spec.get("names")),
            "storedVersions": [_storage_version(spec)],
        }

    @staticmethod
    def _default(obj: Json) -> None:
        spec = obj.setdefault("spec", {})
        if not isinstance(spec, dict):
            return
        names = mapping(spec.get("names"))
        kind = text(names.get("kind"))
        if kind:
            if not names.get("singular"):
                names["singular"] = kind.lower()
            if not names.get("listKind"):
                names["listKind"] = kind + "List"
        spec.setdefault("conversion", {"strategy": "None"})

    def check(self, obj: Json, old: Json | None, subresource: str) -> list[FieldCause]:
        if subresource:
            return []
        spec, name = mapping(obj.get("spec")), text(metadata(obj).get("name"))
        names = mapping(spec.get("names"))
        group, plural = text(spec.get("group")), text(names.get("plural"))
        causes = [
            required(f"spec.{field}")
            for field, value in (
                ("group", group),
                ("names.plural", plural),
                ("names.kind", names.get("kind")),
                ("scope", spec.get("scope")),
            )
            if not value
        ]
        if name != f"{plural}.{group}" and not causes:
            causes.append(wrong_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
        if spec.get("scope") not in ("Namespaced", "Cluster", None):
            causes.append(unsupported_value("spec.scope", spec["scope"], ("Cluster", "Namespaced")))
        strategy = mapping(spec.get("conversion")).get("strategy")
        if strategy not in ("None", "Webhook"):
            causes.append(unsupported_value("spec.conversion.strategy", strategy, ("None", "Webhook")))
        elif strategy == "Webhook":
            message = "this server converts by changing apiVersion only; use None"
            causes.append(wrong_value("spec.conversion.strategy", spec["conversion"], message))
        if spec.get("preserveUnknownFields") is True:
            message = (
                "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
                "spec.versions[*].schema instead"
            )
            causes.append(wrong_value("spec.preserveUnknownFields", True, message))
        causes += self._check_versions(spec)
        causes += _lost_versions(spec, mapping(obj.get("status")))
        if old is not None:
            before = mapping(old.get("spec"))
            for field in ("group", "scope"):
                if before.get(field) != spec.get(field):
                    causes.append(wrong_value(f"spec.{field}", spec.get(field), "field is immutable"))
            for field in ("plural", "kind"):
                if mapping(before.get("names")).get(field) != names.get(field):
                    causes.append(wrong_value(f"spec.names.{field}", names.get(field), "field is immutable"))
        return causes

    def _check_versions(self, spec: Json) -> list[FieldCause]:
        from phalanx_local.schema import check_schema

        versions = sequence(spec.get("versions"))
        causes: list[FieldCause] = []
        storage = [mapping(version).get("name") for version in versions if mapping(version).get("storage")]
        if len(storage) != 1:
            why = "must have exactly one version marked as storage version"
            causes.append(wrong_value("spec.versions", storage, why))
        seen = set()
        for index, version in enumerate(versions):
            path, name = f"spec.versions[{index}]", text(mapping(version).get("name"))
            if not name:
                causes.append(required(f"{path}.name"))
            elif complaints := dns1035_label(name):
                causes += [wrong_value(f"{path}.name", name, why) for why in complaints]
            elif name in seen:
                causes.append(FieldCause(f"{path}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"'))
            seen.add(name)
            schema = mapping(mapping(version).get("schema")).get("openAPIV3Schema")
            if not isinstance(schema, dict):
                causes.append(required(f"{path}.schema.openAPIV3Schema", "schemas are required"))
                continue
            causes += _scale_causes(path, mapping(mapping(version.get("subresources")).get("scale")))
            causes += [
                FieldCause(f"{path}.schema.{error.field}", error.reason, error.message)
                for error in check_schema(schema)
            ]
        return causes


def _lost_versions(spec: Json, status: Json) -> list[FieldCause]:
    """Return errors for versions that an update removes from a CRD although stored objects can still have them."""
    known = {mapping(version).get("name") for version in sequence(spec.get("versions"))}
    return [
        wrong_value(
            f"status.storedVersions[{index}]",
            name,
            f"missing from spec.versions; {name} was previously a storage version, and must remain in "
            f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
            f"{name} from status.storedVersions",
        )
        for index, name in enumerate(sequence(status.get("storedVersions")))
        if name and name not in known
    ]


def _scale_causes(path: str, scale: Json) -> list[FieldCause]:
    causes = []
    for field, roots in _SCALE_ROOTS if scale else ():
        value = text(scale.get(field))
        where = f"{path}.subresources.scale.{field}"
        if not value and len(roots) == 1:
            causes.append(required(where))
        elif value and not value.startswith(roots):
            under = " or ".join(root.rstrip(".") for root in roots)
            causes.append(wrong_value(where, value, f"should be a json path under {under}"))
    return causes


def _require_typed_schemas(obj: Json) -> None:
    """Raise 400 if `items` or `additionalProperties` of a CRD's schema cannot be decoded as schemas.

    Both keywords have other valid forms, so the type table accepts any value for them.
    """
    for version in sequence(mapping(obj.get("spec")).get("versions")):
        schema = mapping(mapping(mapping(version).get("schema")).get("openAPIV3Schema"))
        pending: list[Any] = [schema]
        while pending:
            value = pending.pop()
            if isinstance(value, list):
                pending.extend(value)
            if not isinstance(value, dict):
                continue
            for key in ("items", "additionalProperties"):
                below = value.get(key)
                if below is None or (key == "additionalProperties" and isinstance(below, bool)):
                    continue
                _require_schema(key, below)
            pending.extend(value.values())


def _require_schema(key: str, schema: Any) -> None:
    wrapped = {"spec": {"versions": [{"name": "", "schema": {"openAPIV3Schema": schema}}]}}
    wrong = malformed("apiextensions.k8s.io", "CustomResourceDefinition", wrapped, "v1")
    if wrong or not isinstance(schema, dict):
        message = wrong[0].message if wrong else "must be a schema"
        raise bad_request(f"CustomResourceDefinition cannot be handled: {key}: {message}")


def _storage_version(spec: Json) -> str:
    for version in sequence(spec.get("versions")):
        if mapping(version).get("storage"):
            return text(mapping(version).get("name"))
    return ""


def _taken_names(obj: Json, spec: Json, write: Write) -> list[str]:
    """Return the names of a CustomResourceDefinition that another definition of the same group has already."""
    mine = _names(spec)
    taken = set()
    for definition in write.cluster.all("apiextensions.k8s.io", "customresourcedefinitions"):
        other_spec = mapping(definition.get("spec"))
        if other_spec.get("group") == spec.get("group") and metadata(definition).get("name") != metadata(obj).get(
            "name"
        ):
            taken |= mine & _names(other_spec)
    return sorted(taken)


def _names(spec: Json) -> set[str]:
    names = mapping(spec.get("names"))
    values = [names.get("plural"), names.get("singular"), names.get("kind"), names.get("listKind")]
    return {text(name) for name in [*values, *sequence(names.get("shortNames"))] if name}
