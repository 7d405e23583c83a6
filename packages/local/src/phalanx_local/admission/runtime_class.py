"""RuntimeClass admission: adds the overhead, node selector and tolerations of a pod's class to the pod.

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
    """Merge overhead, node selector and tolerations of a pod's RuntimeClass into the pod, in place. Raise 403 if
    the class is unknown or contradicts the pod."""
    spec = mapping(obj.get("spec"))
    name = text(spec.get("runtimeClassName"))
    runtime_class: Json = {}
    if name:
        stored = write.cluster.find("node.k8s.io", "runtimeclasses", "", name)
        if stored is None:
            raise _rejected(obj, f'pod rejected: RuntimeClass "{name}" not found')
        runtime_class = stored
    _set_overhead(obj, spec, mapping(runtime_class.get("overhead")).get("podFixed"))
    scheduling = runtime_class.get("scheduling")
    if isinstance(scheduling, dict):
        _set_scheduling(obj, spec, scheduling)


def _set_overhead(obj: Json, spec: Json, overhead: object) -> None:
    pod_overhead = spec.get("overhead")
    if overhead:
        if pod_overhead is not None and _amounts(pod_overhead) != _amounts(overhead):
            raise _rejected(obj, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        spec["overhead"] = overhead
    elif pod_overhead:
        message = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        raise _rejected(obj, message)


def _amounts(listed: object) -> Json:
    """Return the quantities of a resource list as numbers; an invalid quantity is not converted and equals only
    itself."""
    values: Json = {}
    for name, value in mapping(listed).items():
        try:
            values[name] = read_quantity(value).nano
        except QuantityError:
            values[name] = value
    return values


def _set_scheduling(obj: Json, spec: Json, scheduling: Json) -> None:
    selector = mapping(spec.get("nodeSelector"))
    for key, value in mapping(scheduling.get("nodeSelector")).items():
        own = selector.get(key, value)
        if own != value:
            message = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {own}"
            )
            raise _rejected(obj, message)
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
    """Return whether the toleration `wide` tolerates every taint that `narrow` tolerates."""
    wider, narrower = mapping(wide), mapping(narrow)
    if wider == narrower:
        return True
    if text(wider.get("key")) not in ("", text(narrower.get("key"))):
        return False
    if text(wider.get("effect")) not in ("", text(narrower.get("effect"))):
        return False
    if text(wider.get("effect")) == "NoExecute" and wider.get("tolerationSeconds") is not None:
        seconds = narrower.get("tolerationSeconds")
        if seconds is None or seconds > wider["tolerationSeconds"]:
            return False
    if text(wider.get("operator")) == "Exists":
        return True
    same_operator = text(narrower.get("operator")) in ("", "Equal")
    return (
        same_operator and text(wider.get("value")) == text(narrower.get("value")) and bool(text(wider.get("key")))
    )


def _rejected(obj: Json, why: str) -> StatusError:
    meta = metadata(obj)
    return forbidden(_Pods(), text(meta.get("name")) or text(meta.get("generateName")), why)
