"""Webhook configurations that make the API server call this webhook; only the configurations with our name are
changed."""

from __future__ import annotations

import base64
import itertools
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from phalanx.admission.fields import mapping, sequence, text
from phalanx.admission.pods import QUEUE_GATE
from phalanx.admission.queue_rights import LABELLED
from phalanx.admission.webhook.routes import QUEUE_RIGHTS, QUOTA_RESERVATIONS, ROUTES, Route
from phalanx.dialects.gangs.declaration import QUEUE_ANNOTATION
from phalanx.jobs.reservations import ENABLED, RESERVING
from phalanx.jobs.suspended import QUEUE_LABEL
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.errors import ApiError
from phalanx.kube.own_objects import LABELS
from phalanx.kube.paths import Resource

log = logging.getLogger(__name__)

NAME = "phalanx-webhook"
#: The Secret with the certificates.
CERTIFICATES = "phalanx-webhook-certificates"
FIELD_MANAGER = "phalanx-webhook"
_GROUP, _VERSION = "admissionregistration.k8s.io", "v1"
MUTATING = Resource(
    _GROUP, _VERSION, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False
)
VALIDATING = Resource(
    _GROUP, _VERSION, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False
)
_NAMESPACE_NAME = "kubernetes.io/metadata.name"

Json = dict[str, Any]


class WebhookAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Address of the webhook for the API server: `url` (without a path), or the Service `namespace`/`service`."""

    url: str = ""
    namespace: str = ""
    service: str = ""
    port: int = 443

    def client_config(self, path: str, authorities: bytes) -> Json:
        config: Json = {"caBundle": base64.b64encode(authorities).decode()}
        if self.url:
            config["url"] = self.url.rstrip("/") + path
        else:
            config["service"] = {
                "namespace": self.namespace,
                "name": self.service,
                "path": path,
                "port": self.port,
            }
        return config


class RegistrationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the webhook's registration at the API server. `failure_policy` is for our own kinds. Pods fail
    open, except with `queue_rights`: a pod that names a queue must not pass unchecked. `excluded_namespaces` are
    never reviewed."""

    address: WebhookAddress
    scheduler_names: tuple[str, ...]
    failure_policy: str = "Fail"
    queue_rights: bool = False
    resource_groups: bool = False
    excluded_namespaces: tuple[str, ...] = ("kube-system",)
    timeout_seconds: int = 10


async def register(client: KubeClient, options: RegistrationOptions, authorities: bytes) -> bool:
    """Apply the mutating and the validating webhook configuration if they differ from the stored ones. Return
    whether one was written."""
    wrote = False
    for manifest in configurations(options, authorities):
        resource = MUTATING if manifest["kind"] == MUTATING.kind else VALIDATING
        path = resource.path(None, NAME)
        try:
            stored = await client.get(path)
        except ApiError as error:
            if error.status != 404:
                raise
            stored = {}
        if _includes(stored.get("webhooks"), manifest["webhooks"]) and _includes(
            mapping(stored.get("metadata")).get("labels"), manifest["metadata"]["labels"]
        ):
            continue
        await client.patch(path, manifest, PatchType.APPLY, field_manager=FIELD_MANAGER, force=True)
        log.info("%s %s registered", resource.kind, NAME)
        wrote = True
    return wrote


async def unregister(client: KubeClient, address: WebhookAddress | None = None) -> str:
    """Delete both webhook configurations; with `address` only those that call it, because a cluster has one
    registration, which can be another installation's. Return the address that the API server still calls, "" if
    none."""
    remaining_address = ""
    for resource in (MUTATING, VALIDATING):
        path = resource.path(None, NAME)
        try:
            if address is not None and (other_address := _called_elsewhere(await client.get(path), address)):
                remaining_address = other_address
                continue
            await client.delete(path)
        except ApiError as error:
            if error.status != 404:
                raise
    return remaining_address


def _called_elsewhere(configuration: Json, address: WebhookAddress) -> str:
    """Return the address that a webhook configuration calls if it is not `address`, else ""."""
    for webhook in sequence(configuration.get("webhooks")):
        config = mapping(mapping(webhook).get("clientConfig"))
        service = mapping(config.get("service"))
        if not service or (service.get("namespace"), service.get("name")) != (address.namespace, address.service):
            return text(config.get("url")) or f"{text(service.get('namespace'))}/{text(service.get('name'))}"
    return ""


def configurations(options: RegistrationOptions, authorities: bytes) -> list[Json]:
    """Return both webhook configurations with every default, so that they can be compared with the stored ones."""
    return [
        {
            "apiVersion": f"{_GROUP}/{_VERSION}",
            "kind": resource.kind,
            "metadata": {"name": NAME, "labels": dict(LABELS)},
            "webhooks": [
                entry for route in ROUTES if is_included(route) for entry in _entries(route, options, authorities)
            ],
        }
        for resource, is_included in ((MUTATING, _mutates), (VALIDATING, _validates))
    ]


def _mutates(route: Route) -> bool:
    return route.defaults is not None


def _validates(route: Route) -> bool:
    return route.validate is not None


def _entries(route: Route, options: RegistrationOptions, authorities: bytes) -> Iterator[Json]:
    if route.rights_only and not options.queue_rights:
        return
    base = _entry(route, options, authorities)
    if route is QUEUE_RIGHTS:
        # Native Jobs belong to all users of a cluster: only those that name a queue are reviewed.
        conditions = [("named", _names_a_queue()), ("changed", _CHANGED)]
        yield base | {"name": "queuerights.webhook.phalanx.dev", "failurePolicy": "Fail"} | _conditions(conditions)
        return
    if route is QUOTA_RESERVATIONS:
        # Pods of every scheduler use the quota of their namespace.
        reserving = base["namespaceSelector"] | {"matchLabels": {RESERVING: ENABLED}}
        yield base | {
            "failurePolicy": "Ignore",
            "namespaceSelector": reserving,
            "sideEffects": "NoneOnDryRun",
        }
        return
    if route.subject != "pods":
        yield base | {"failurePolicy": options.failure_policy}
        return
    names = ", ".join(f"'{name}'" for name in options.scheduler_names)
    ours = f"has(object.spec.schedulerName) && object.spec.schedulerName in [{names}]"
    open_ended = base | {"failurePolicy": "Ignore"}
    if _mutates(route):
        gated = f"has(object.metadata.annotations) && '{QUEUE_GATE}' in object.metadata.annotations"
        # A resource group can select pods of any scheduler.
        conditions = [] if options.resource_groups else [("ours", ours), ("gated", gated)]
        yield open_ended | _conditions(conditions)
        return
    budgets = (
        "has(object.metadata.annotations) "
        "&& object.metadata.annotations.exists(key, key.startsWith('volcano.sh/jdb-'))"
    )
    yield open_ended | _conditions([("ours", ours), ("budgeted", budgets)])
    if options.queue_rights:
        # Users with write access to a pod's status can change its labels with it; kubelets change no queue.
        rules = [rule | {"resources": ["pods", "pods/status"]} for rule in base["rules"]]
        yield (
            base
            | {"name": "queuerights.pods.webhook.phalanx.dev", "failurePolicy": "Fail", "rules": rules}
            | _conditions([("ours", ours), ("queued", _NAMES_ANOTHER_QUEUE)])
        )


_NAMES_ANOTHER_QUEUE = " || ".join(
    f"(has(object.metadata.{field}) && '{QUEUE_ANNOTATION}' in object.metadata.{field} "
    f"&& (request.operation == 'CREATE' || !has(oldObject.metadata.{field}) "
    f"|| !('{QUEUE_ANNOTATION}' in oldObject.metadata.{field}) "
    f"|| object.metadata.{field}['{QUEUE_ANNOTATION}'] != oldObject.metadata.{field}['{QUEUE_ANNOTATION}']))"
    for field in ("annotations", "labels")
)
_CHANGED = (
    "request.operation == 'CREATE' "
    "|| (has(object.spec) && (!has(oldObject.spec) || object.spec != oldObject.spec)) "
    "|| (has(object.metadata.labels) && (!has(oldObject.metadata.labels) "
    "|| object.metadata.labels != oldObject.metadata.labels))"
)


def _names_a_queue() -> str:
    """Return the CEL condition for the resources of `QUEUE_RIGHTS` that name a queue."""
    terms = ["(request.resource.resource == 'podgroups' && has(object.spec) && has(object.spec.queue))"]
    for resource, places in sorted(LABELLED.items()):
        plural, _, group = resource.partition(".")
        condition = " || ".join(f"({_has_label('object', path)})" for path in places)
        terms.append(
            f"(request.resource.group == '{group}' && request.resource.resource == '{plural}' && ({condition}))"
        )
    return " || ".join(terms)


def _has_label(root: str, path: Sequence[str]) -> str:
    """Return the CEL condition that the queue label exists at a path below `root`."""
    before = list(itertools.takewhile(lambda key: key != "*", path))
    exists = " && ".join(f"has({'.'.join([root, *before[: end + 1]])})" for end in range(len(before)))
    prefix = ".".join([root, *before])
    if len(before) == len(path):
        return f"{exists} && '{QUEUE_LABEL}' in {prefix}"
    return f"{exists} && {prefix}.exists(each, {_has_label('each', path[len(before) + 1 :])})"


def _conditions(conditions: list[tuple[str, str]]) -> Json:
    if not conditions:
        return {}
    return {"matchConditions": [{"name": name, "expression": expression} for name, expression in conditions]}


def _entry(route: Route, options: RegistrationOptions, authorities: bytes) -> Json:
    entry: Json = {
        "name": f"{route.path.split('/')[2]}.{route.subject}.webhook.phalanx.dev",
        "clientConfig": options.address.client_config(route.path, authorities),
        "rules": [
            {
                "apiGroups": [resource.partition(".")[2]],
                "apiVersions": [route.version],
                "operations": list(route.operations),
                "resources": [resource.partition(".")[0]],
                "scope": "Namespaced" if route.namespaced else "Cluster",
            }
            for resource in route.resources
        ],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "matchPolicy": "Equivalent",
        "timeoutSeconds": options.timeout_seconds,
        "objectSelector": {},
        "namespaceSelector": {
            "matchExpressions": [
                {
                    "key": _NAMESPACE_NAME,
                    "operator": "NotIn",
                    "values": sorted(set(options.excluded_namespaces)),
                }
            ]
        },
    }
    if _mutates(route):
        # Another webhook can add fields that our defaults depend on; a second run adds no field twice.
        entry["reinvocationPolicy"] = "IfNeeded"
    return entry


def _includes(stored: Any, wanted: Any) -> bool:
    """Return whether a stored value includes the wanted value; it can have further fields, even unknown ones."""
    if isinstance(wanted, dict):
        return isinstance(stored, dict) and all(_includes(stored.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(stored, list) and len(stored) == len(wanted) and all(map(_includes, stored, wanted))
    return bool(stored == wanted)
