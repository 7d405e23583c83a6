"""RuntimeClass admission: a pod gets its class's overhead and goes where the class's nodes are.

https://kubernetes.io/docs/concepts/containers/runtime-class/
"""

from __future__ import annotations

from typing import Any, Final

from phalanx.model.text.quantity import QuantityError, read_quantity
from phalanx_local.errors import StatusError, forbidden
from phalanx_local.objects import Json, mapping, metadata, sequence, text
from phalanx_local.strategies.base import Write


class _Pods:
    group: Final = ""
    plural: Final = "pods"
    kind: Final = "Pod"


def admit_runtime_class(obj: Json, write: Write) -> None:
    """Merges the pod's class into its spec, in place. Raises 403 where it is unknown or they differ."""
    spec = mapping(obj.get("spec"))
    name = text(spec.get("runtimeClassName"))
    found: Json = {}
    if name:
        stored = write.cluster.find("node.k8s.io", "runtimeclasses", "", name)
        if stored is None:
            raise _rejected(obj, f'pod rejected: RuntimeClass "{name}" not found')
        found = stored
    _set_overhead(obj, spec, mapping(found.get("overhead")).get("podFixed"))
    scheduling = found.get("scheduling")
    if isinstance(scheduling, dict):
        _set_scheduling(obj, spec, scheduling)


def _set_overhead(obj: Json, spec: Json, overhead: object) -> None:
    given = spec.get("overhead")
    if overhead:
        if given is not None and _amounts(given) != _amounts(overhead):
            raise _rejected(obj, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        spec["overhead"] = overhead
    elif given:
        why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        raise _rejected(obj, why)


def _amounts(listed: object) -> Json:
    """Quantities by what they are worth; one that is none stays as it is, and equals nothing else."""
    found: Json = {}
    for name, value in mapping(listed).items():
        try:
            found[name] = read_quantity(value).nano
        except QuantityError:
            found[name] = value
    return found


def _set_scheduling(obj: Json, spec: Json, scheduling: Json) -> None:
    selector = mapping(spec.get("nodeSelector"))
    for key, value in mapping(scheduling.get("nodeSelector")).items():
        own = selector.get(key, value)
        if own != value:
            why = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {own}"
            )
            raise _rejected(obj, why)
        selector[key] = value
    if selector:
        spec["nodeSelector"] = selector
    tolerations = sequence(spec.get("tolerations"))
    for toleration in sequence(scheduling.get("tolerations")):
        if not any(_includes(other, toleration) for other in tolerations):
            tolerations.append(toleration)
    if tolerations:
        spec["tolerations"] = tolerations


def _includes(wide: Any, narrow: Any) -> bool:
    """Whether one toleration tolerates everything that another does."""
    one, other = mapping(wide), mapping(narrow)
    if one == other:
        return True
    if text(one.get("key")) not in ("", text(other.get("key"))):
        return False
    if text(one.get("effect")) not in ("", text(other.get("effect"))):
        return False
    if text(one.get("effect")) == "NoExecute" and one.get("tolerationSeconds") is not None:
        seconds = other.get("tolerationSeconds")
        if seconds is None or seconds > one["tolerationSeconds"]:
            return False
    if text(one.get("operator")) == "Exists":
        return True
    same_operator = text(other.get("operator")) in ("", "Equal")
    return same_operator and text(one.get("value")) == text(other.get("value")) and bool(text(one.get("key")))


def _rejected(obj: Json, why: str) -> StatusError:
    meta = metadata(obj)
    return forbidden(_Pods(), text(meta.get("name")) or text(meta.get("generateName")), why)
