"""Strategies of webhook configurations: defaults and validation."""

from __future__ import annotations

import base64
import binascii
import ssl
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from phalanx_local.admission.expressions import check_expressions
from phalanx_local.errors import FieldCause, required, unsupported_value, wrong_value
from phalanx_local.objects import Json, mapping, sequence, text
from phalanx_local.strategies.base import RestStrategy, Write

_REVIEWS: Final = "v1"
_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
_MAX_TIMEOUT: Final = 30


class WebhookStrategy(RestStrategy):
    """Strategy of MutatingWebhookConfigurations and ValidatingWebhookConfigurations."""

    counts_generation = True

    def __init__(self, *, mutating: bool) -> None:
        self._mutating = mutating

    def prepare_create(self, obj: Json, write: Write) -> None:
        for item in sequence(obj.get("webhooks")):
            webhook = mapping(item)
            webhook.setdefault("failurePolicy", "Fail")
            webhook.setdefault("matchPolicy", "Equivalent")
            webhook.setdefault("namespaceSelector", {})
            webhook.setdefault("objectSelector", {})
            webhook.setdefault("timeoutSeconds", 10)
            if self._mutating:
                webhook.setdefault("reinvocationPolicy", "Never")
            for rule in sequence(webhook.get("rules")):
                mapping(rule).setdefault("scope", "*")
            service = mapping(mapping(webhook.get("clientConfig")).get("service"))
            if service:
                service.setdefault("port", 443)

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        self.prepare_create(obj, write)

    def check(self, obj: Json, old: Json | None, subresource: str) -> list[FieldCause]:
        return [
            cause
            for index, item in enumerate(sequence(obj.get("webhooks")))
            for cause in _causes(mapping(item), f"webhooks[{index}]")
        ]


def _causes(webhook: Json, path: str) -> Iterator[FieldCause]:
    name = text(webhook.get("name"))
    if name.count(".") < 2:
        yield wrong_value(f"{path}.name", name, "should be a domain with at least three segments separated by dots")
    reviews = sequence(webhook.get("admissionReviewVersions"))
    if not reviews:
        yield required(f"{path}.admissionReviewVersions", f"must specify one of {_REVIEWS}, v1beta1")
    elif _REVIEWS not in reviews:
        message = f"must include at least one of {_REVIEWS}, v1beta1"
        yield wrong_value(f"{path}.admissionReviewVersions", reviews, message)
    for field, allowed in (
        ("failurePolicy", ("Fail", "Ignore")),
        ("matchPolicy", ("Equivalent", "Exact")),
        ("reinvocationPolicy", ("IfNeeded", "Never")),
        ("sideEffects", _SIDE_EFFECTS),
    ):
        value = webhook.get(field)
        if value is None and field == "sideEffects":
            yield required(f"{path}.{field}", f"must specify one of {', '.join(_SIDE_EFFECTS)}")
        elif value is not None and value not in allowed:
            yield unsupported_value(f"{path}.{field}", value, allowed)
    timeout = webhook.get("timeoutSeconds")
    if isinstance(timeout, int) and not 1 <= timeout <= _MAX_TIMEOUT:
        yield wrong_value(f"{path}.timeoutSeconds", timeout, "the timeout value must be between 1 and 30 seconds")
    conditions = {"spec": {"matchConditions": webhook.get("matchConditions")}}
    for cause in check_expressions(conditions):
        yield cause._replace(field=f"{path}.{cause.field.removeprefix('spec.')}")
    yield from _client_causes(mapping(webhook.get("clientConfig")), f"{path}.clientConfig")


def _client_causes(config: Json, path: str) -> Iterator[FieldCause]:
    url = text(config.get("url"))
    if bool(url) == bool(config.get("service")):
        yield required(path, "exactly one of url or service is required")
        return
    if url:
        yield from _url_causes(url, f"{path}.url")
    bundle = text(config.get("caBundle"))
    if bundle:
        try:
            ssl.create_default_context(cadata=base64.b64decode(bundle, validate=True).decode())
        except (binascii.Error, ValueError, ssl.SSLError) as error:
            yield wrong_value(f"{path}.caBundle", bundle[:40], f"unable to load root certificates: {error}")


def _url_causes(url: str, path: str) -> Iterator[FieldCause]:
    try:
        parts = urlsplit(url)
        host, user = parts.hostname, parts.username
    except ValueError as error:
        yield wrong_value(path, url, f"url must be a valid URL: {error}")
        return
    if parts.scheme != "https":
        yield wrong_value(path, url, "'https' is the only allowed URL scheme")
    if not host:
        yield wrong_value(path, url, "host must be specified")
    if user is not None:
        yield wrong_value(path, url, "user information is not permitted in the URL")
    if parts.fragment:
        yield wrong_value(path, url, "fragments are not permitted in the URL")
    if parts.query:
        yield wrong_value(path, url, "query parameters are not permitted in the URL")
