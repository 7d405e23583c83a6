"""Pods: defaults and admission that schedulers and kubelets rely on.

Defaults: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ ; admission like the
plugins Priority, ServiceAccount, DefaultTolerationSeconds and RuntimeClass.
"""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.model.pod_quota import qos_class
from phalanx_local.admission.runtime_class import admit_runtime_class
from phalanx_local.errors import FieldCause, forbidden_field
from phalanx_local.objects import Json, mapping, sequence, text
from phalanx_local.strategies.base import RestStrategy, Write
from phalanx_local.strategies.priority import admit_priority
from phalanx_local.strategies.service_accounts import admit_service_account

TERMINAL = ("Succeeded", "Failed")
_EVICTION_SECONDS = 300


class PodStrategy(RestStrategy):
    """Strategy of Pods.

    `group_field` is the spec field with which pods reference their native group; the field of another release is
    dropped, as with a disabled feature gate.
    """

    returns_deleted = True
    counts_generation = True
    status_keeps_metadata = True
    field_labels = frozenset(
        (
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        )
    )

    def __init__(self, *, group_field: str) -> None:
        self._group_field = group_field

    def fields(self, obj: Json) -> dict[str, str]:
        spec, status = mapping(obj.get("spec")), mapping(obj.get("status"))
        return {
            "spec.nodeName": spec.get("nodeName") or "",
            "spec.restartPolicy": spec.get("restartPolicy") or "",
            "spec.schedulerName": spec.get("schedulerName") or "",
            "spec.serviceAccountName": spec.get("serviceAccountName") or "",
            "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
            "status.phase": status.get("phase") or "",
            "status.podIP": status.get("podIP") or "",
            "status.nominatedNodeName": status.get("nominatedNodeName") or "",
        }

    def prepare_create(self, obj: Json, write: Write) -> None:
        spec = obj.setdefault("spec", {})
        if not isinstance(spec, dict):
            return  # validation reports the invalid spec
        for field in ("schedulingGroup", "workloadRef"):
            if field != self._group_field:
                spec.pop(field, None)
        default_pod_spec(spec)
        admit_priority(obj, write)
        admit_service_account(obj, write)
        _default_eviction_tolerations(spec)
        admit_runtime_class(obj, write)

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        spec = obj.setdefault("spec", {})
        if isinstance(spec, dict):
            default_pod_spec(spec)

    def prepare_status(self, obj: Json, old: Json, write: Write) -> None:
        spell_conditions(mapping(obj.get("status")), "lastProbeTime", "lastTransitionTime")
        # The server sets the QoS class at create; it is constant because updates cannot change requests.
        status = mapping(obj.get("status"))
        if "qosClass" in mapping(old.get("status")):
            status.setdefault("qosClass", old["status"]["qosClass"])
        # An older client that drops the field must not clear the phase.
        if not status.get("phase") and mapping(old.get("status")).get("phase"):
            status["phase"] = old["status"]["phase"]

    def initial_status(self, obj: Json, write: Write) -> Json:
        spec = mapping(obj.get("spec"))
        status: Json = {"phase": "Pending", "qosClass": qos_class(spec)}
        if spec.get("schedulingGates"):
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": write.now,
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                }
            ]
        return status

    def check(self, obj: Json, old: Json | None, subresource: str) -> list[FieldCause]:
        if old is None or subresource != "status":
            return []
        return _check_nomination(obj, old)

    def grace_period(self, obj: Json, asked: int | None) -> int | None:
        spec = mapping(obj.get("spec"))
        if not spec.get("nodeName") or mapping(obj.get("status")).get("phase") in TERMINAL:
            return 0
        period = asked if asked is not None else spec.get("terminationGracePeriodSeconds", 30)
        return 1 if period < 0 else int(period)


def spell_conditions(status: Json, *times: str) -> None:
    """Set absent times of conditions to null, because Go encodes its zero time as null."""
    for condition in sequence(status.get("conditions")):
        if isinstance(condition, dict):
            for field in times:
                condition.setdefault(field, None)


def default_pod_spec(spec: Json) -> None:
    """Set the defaults of a pod spec, or of a pod template's spec, in place."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    host_network = spec.get("hostNetwork") is True
    for container in containers(spec):
        _default_container(container, host_network)
    for volume in sequence(spec.get("volumes")):
        if isinstance(volume, dict) and set(volume) == {"name"}:
            volume["emptyDir"] = {}
    for constraint in sequence(spec.get("topologySpreadConstraints")):
        if isinstance(constraint, dict):
            constraint.setdefault("maxSkew", 1)
            constraint.setdefault("whenUnsatisfiable", "DoNotSchedule")
    _default_pod_level_requests(mapping(spec.get("resources")))
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def containers(spec: Json) -> Iterator[Json]:
    """Yield the init containers, then the containers of a pod spec; items that are no JSON objects are skipped."""
    for group in ("initContainers", "containers"):
        for container in sequence(spec.get(group)):
            if isinstance(container, dict):
                yield container


def _default_container(container: Json, host_network: bool) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = _pull_policy(text(container.get("image")))
    for port in sequence(container.get("ports")):
        if isinstance(port, dict):
            port.setdefault("protocol", "TCP")
            if host_network and not port.get("hostPort") and "containerPort" in port:
                port["hostPort"] = port["containerPort"]
    resources = container["resources"]
    limits = mapping(mapping(resources).get("limits"))
    if limits:
        requests = resources.setdefault("requests", {})
        if isinstance(requests, dict):
            for name, quantity in limits.items():
                requests.setdefault(name, quantity)
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(container.get(probe), dict):
            _default_probe(container[probe])
    for variable in sequence(container.get("env")):
        reference = mapping(mapping(mapping(variable).get("valueFrom")).get("fieldRef"))
        if reference:
            reference.setdefault("apiVersion", "v1")


def _default_probe(probe: Json) -> None:
    for name, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        probe.setdefault(name, value)
    get = probe.get("httpGet")
    if isinstance(get, dict):
        get.setdefault("path", "/")
        get.setdefault("scheme", "HTTP")


def _pull_policy(image: str) -> str:
    last = image.rsplit("/", 1)[-1]
    if "@" in last:
        return "IfNotPresent"
    tag = last.partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _default_pod_level_requests(resources: Json) -> None:
    limits = mapping(resources.get("limits"))
    if limits:
        requests = resources.setdefault("requests", {})
        if isinstance(requests, dict):
            for name, quantity in limits.items():
                requests.setdefault(name, quantity)


def _default_eviction_tolerations(spec: Json) -> None:
    """Add five minutes of toleration for the not-ready and unreachable taints unless the pod tolerates them
    already.
    """
    spec.setdefault("enableServiceLinks", True)
    tolerations = spec.get("tolerations")
    if tolerations is None:
        tolerations = spec["tolerations"] = []
    if not isinstance(tolerations, list):
        return
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_tolerates(item, key) for item in tolerations):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _EVICTION_SECONDS,
                }
            )


def _tolerates(toleration: object, key: str) -> bool:
    if not isinstance(toleration, dict):
        return False
    return toleration.get("key") in (key, None, "") and toleration.get("effect") in ("NoExecute", None, "")


def _check_nomination(obj: Json, old: Json) -> list[FieldCause]:
    after = mapping(obj.get("status")).get("nominatedNodeName")
    before = mapping(old.get("status")).get("nominatedNodeName")
    if after and after != before and mapping(old.get("spec")).get("nodeName"):
        message = "may not be set on pods that are already bound to a node"
        return [forbidden_field("status.nominatedNodeName", message)]
    return []
