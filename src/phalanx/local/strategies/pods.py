"""Pods: the defaults and the admission that a scheduler and a kubelet rely on.

Defaults: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ ; admission as the
plugins Priority, ServiceAccount and DefaultTolerationSeconds do it.
"""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.local.errors import FieldCause, forbidden_field
from phalanx.local.objects import Json, clone, mapping, metadata, sequence, text
from phalanx.local.strategies.base import Strategy, Write
from phalanx.local.strategies.priority import admit_priority
from phalanx.local.strategies.serviceaccounts import admit_service_account

TERMINAL = ("Succeeded", "Failed")
_EVICTION_SECONDS = 300
_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to "
    "existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
    "previously negative)"
)


class PodStrategy(Strategy):
    """v1 Pod."""

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
            return  # validation says so
        default_pod_spec(spec)
        admit_priority(obj, write)
        admit_service_account(obj, write)
        _default_eviction_tolerations(spec)

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        spec = obj.setdefault("spec", {})
        if isinstance(spec, dict):
            default_pod_spec(spec)

    def prepare_status(self, obj: Json, old: Json, write: Write) -> None:
        # Set once by the server at create, and constant since requests may not change QoS.
        status = mapping(obj.get("status"))
        if "qosClass" in mapping(old.get("status")):
            status.setdefault("qosClass", old["status"]["qosClass"])
        # The node's word on its own pods; an older client that drops the field must not clear the phase.
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
                    "lastTransitionTime": None,
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                }
            ]
        return status

    def check(self, obj: Json, old: Json | None, subresource: str) -> list[FieldCause]:
        if old is None:
            return []
        if subresource == "":
            return _check_spec_update(mapping(obj.get("spec")), mapping(old.get("spec")))
        if subresource == "status":
            return _check_nomination(obj, old)
        return []

    def grace_period(self, obj: Json, asked: int | None) -> int | None:
        spec = mapping(obj.get("spec"))
        if not spec.get("nodeName") or mapping(obj.get("status")).get("phase") in TERMINAL:
            return 0
        period = asked if asked is not None else spec.get("terminationGracePeriodSeconds", 30)
        return 1 if period < 0 else int(period)


def default_pod_spec(spec: Json) -> None:
    """Fills the defaults of a pod spec in place; also those of pod templates."""
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
    """Init containers, then containers; only those that are objects."""
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
    """Each new pod outlives the not-ready and unreachable taints by five minutes unless it says otherwise."""
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


def qos_class(spec: Json) -> str:
    """Guaranteed, Burstable or BestEffort by cpu and memory of the pod or of all its containers."""
    pod_level = mapping(spec.get("resources"))
    holders = [pod_level] if pod_level else [mapping(item.get("resources")) for item in containers(spec)]
    guaranteed, anything = bool(holders), False
    for resources in holders:
        requests, limits = mapping(resources.get("requests")), mapping(resources.get("limits"))
        for name in ("cpu", "memory"):
            request, limit = str(requests.get(name, "0")), str(limits.get(name, "0"))
            anything = anything or request != "0" or limit != "0"
            guaranteed = guaranteed and limit != "0" and request == limit
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _check_spec_update(spec: Json, old: Json) -> list[FieldCause]:
    if spec == old:
        return []
    gated = bool(old.get("schedulingGates"))
    causes = _check_gates(spec, old)
    kept = clone(spec)
    for group in ("containers", "initContainers"):
        before = sequence(old.get(group))
        after = sequence(kept.get(group))
        if len(before) == len(after):
            for mine, theirs in zip(after, before, strict=True):
                if isinstance(mine, dict) and isinstance(theirs, dict):
                    _keep(mine, theirs, "image")
    _keep(kept, old, "activeDeadlineSeconds")
    _keep(kept, old, "schedulingGates")
    _keep(kept, old, "preemptionPolicy")
    causes += _check_tolerations(spec, old)
    _keep(kept, old, "tolerations")
    causes += _check_deadline(spec, old)
    if old.get("terminationGracePeriodSeconds", 30) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        _keep(kept, old, "terminationGracePeriodSeconds")
    if gated:
        causes += _check_gated_placement(spec, old)
        _keep(kept, old, "nodeSelector")
        _keep(kept, old, "affinity")
    if kept != old:
        causes.append(forbidden_field("spec", _IMMUTABLE))
    return causes


def _keep(mine: Json, theirs: Json, field: str) -> None:
    if field in theirs:
        mine[field] = theirs[field]
    else:
        mine.pop(field, None)


def _check_gates(spec: Json, old: Json) -> list[FieldCause]:
    names = [mapping(gate).get("name") for gate in sequence(old.get("schedulingGates"))]
    added = [gate for gate in sequence(spec.get("schedulingGates")) if mapping(gate).get("name") not in names]
    if added:
        listed = ", ".join(text(mapping(gate).get("name")) for gate in added)
        text_ = f"only deletion is allowed, but found new scheduling gate '{listed}'"
        return [forbidden_field("spec.schedulingGates", text_)]
    return []


def _check_tolerations(spec: Json, old: Json) -> list[FieldCause]:
    after = [_without_seconds(item) for item in sequence(spec.get("tolerations"))]
    for item in sequence(old.get("tolerations")):
        if _without_seconds(item) not in after:
            return [
                forbidden_field(
                    "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
                )
            ]
    return []


def _without_seconds(toleration: object) -> Json:
    return {key: value for key, value in mapping(toleration).items() if key != "tolerationSeconds"}


def _check_deadline(spec: Json, old: Json) -> list[FieldCause]:
    before, after = old.get("activeDeadlineSeconds"), spec.get("activeDeadlineSeconds")
    if before is not None and (after is None or after > before):
        why = "must not update from a positive integer to a larger value or nil"
        return [forbidden_field("spec.activeDeadlineSeconds", why)]
    return []


def _check_gated_placement(spec: Json, old: Json) -> list[FieldCause]:
    """While a pod is gated its placement may only be narrowed."""
    selector, before = mapping(spec.get("nodeSelector")), mapping(old.get("nodeSelector"))
    causes = []
    if any(selector.get(key) != value for key, value in before.items()):
        why = "only additions are allowed (no mutations or deletions)"
        causes.append(forbidden_field("spec.nodeSelector", why))
    affinity, old_affinity = mapping(spec.get("affinity")), mapping(old.get("affinity"))
    if any(affinity.get(key) != old_affinity.get(key) for key in ("podAffinity", "podAntiAffinity")):
        causes.append(forbidden_field("spec.affinity", "only node affinity may change while a pod is gated"))
    terms = _required_terms(affinity)
    old_terms = _required_terms(old_affinity)
    if old_terms and not _narrows(terms, old_terms):
        why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed; only additions within terms"
        field = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        causes.append(forbidden_field(field, why))
    return causes


def _required_terms(affinity: Json) -> list[Json]:
    required = mapping(affinity.get("nodeAffinity")).get("requiredDuringSchedulingIgnoredDuringExecution")
    return [mapping(term) for term in sequence(mapping(required).get("nodeSelectorTerms"))]


def _narrows(terms: list[Json], old_terms: list[Json]) -> bool:
    if len(terms) != len(old_terms):
        return False
    for term, old_term in zip(terms, old_terms, strict=True):
        for part in ("matchExpressions", "matchFields"):
            after = sequence(term.get(part))
            if any(expression not in after for expression in sequence(old_term.get(part))):
                return False
    return True


def _check_nomination(obj: Json, old: Json) -> list[FieldCause]:
    after = mapping(obj.get("status")).get("nominatedNodeName")
    before = mapping(old.get("status")).get("nominatedNodeName")
    if after and after != before and mapping(old.get("spec")).get("nodeName"):
        why = "nominatedNodeName cannot be set on a pod that is already bound to a node"
        return [forbidden_field("status.nominatedNodeName", why)]
    return []


def pod_name(obj: Json) -> str:
    return text(metadata(obj).get("name"))
