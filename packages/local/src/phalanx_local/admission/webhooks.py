"""MutatingWebhookConfiguration and ValidatingWebhookConfiguration: selection and evaluation of webhooks.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from phalanx_local.admission.expressions import CompiledPolicy, Evaluation, admission_request, compile_conditions
from phalanx_local.admission.policy_matching import Request, matches, request_about
from phalanx_local.admission.webhook_calls import UnansweredWebhook, WebhookAnswer, WebhookAnswers, WebhookCall
from phalanx_local.authentication.authenticator import CONTROLLER_MANAGER
from phalanx_local.authorization import Rbac
from phalanx_local.errors import StatusError, internal
from phalanx_local.objects import Json, encode, mapping, sequence, text
from phalanx_local.patches import PatchError, json_patch
from phalanx_local.registry.api import Api
from phalanx_local.registry.decoding import decode_object
from phalanx_local.registry.resources import Version
from phalanx_local.storage.records import Change
from phalanx_local.storage.store import Collection
from phalanx_local.strategies.base import Write

_GROUP: Final = "admissionregistration.k8s.io"
_PLURALS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_OPTIONS: Final = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}


@dataclass(frozen=True, slots=True)
class _Webhook:
    """One webhook of a Mutating- or ValidatingWebhookConfiguration, with compiled match conditions."""

    configuration: str
    name: str
    spec: Json
    constraints: Json
    conditions: CompiledPolicy

    @property
    def fails_closed(self) -> bool:
        return self.spec.get("failurePolicy") != "Ignore"


class Webhooks:
    """Configured admission webhooks. Methods raise UnansweredWebhook if responses are missing in
    `write.answers`."""

    def __init__(self, api: Api, rbac: Rbac) -> None:
        self._api = api
        self._rbac = rbac
        self._configurations: dict[str, dict[str, list[_Webhook]]] = {plural: {} for plural in _PLURALS}
        api.store.listen(self._changed)

    def load(self) -> None:
        """Load the webhook configurations that the server restored from its data file."""
        for plural in _PLURALS:
            for item in self._api.all(_GROUP, plural):
                self._configurations[plural][text(item["metadata"].get("name"))] = _read(item)

    def _changed(self, collection: Collection, change: Change) -> None:
        group, _, plural = collection.storage.partition("/")
        if group != _GROUP or plural not in self._configurations:
            return
        known = self._configurations[plural]
        known.pop(change.key[1], None)
        if change.new is not None:
            known[change.key[1]] = _read(change.new.load())

    @property
    def configured(self) -> bool:
        """Whether the cluster has a webhook in any configuration."""
        return any(map(any, map(dict.values, self._configurations.values())))

    def mutate(
        self,
        operation: str,
        version: Version,
        obj: Json,
        old: Json | None,
        write: Write,
        *,
        of: tuple[str, str, str],
    ) -> Json:
        """Return the written object, in stored form, as changed by the mutating webhooks. Raise the rejection of a
        webhook that denies."""
        if write.answers is None or version.type.group == _GROUP or not self.configured:
            return obj
        request = request_about(self._api, operation, version, obj, old, write, of=of)
        document = before = request.obj
        after: list[tuple[_Webhook, Json | None]] = []
        for webhook in self._all("mutatingwebhookconfigurations"):
            called, document = self._mutated(webhook, replace(request, obj=document), write, write.answers)
            if called:
                after.append((webhook, document))
        for webhook, result in after:
            if webhook.spec.get("reinvocationPolicy") == "IfNeeded" and result != document:
                _, document = self._mutated(webhook, replace(request, obj=document), write, write.answers)
        write.admitted = _digest(document)
        if document is None or document == before:
            return obj
        return decode_object(version, document, replace(write, field_validation="Ignore", warnings=[]))

    def validate(
        self,
        operation: str,
        version: Version,
        obj: Json | None,
        old: Json | None,
        write: Write,
        *,
        of: tuple[str, str, str],
    ) -> None:
        """Raise the rejection of the first validating webhook that denies the write."""
        webhooks = self._all("validatingwebhookconfigurations")
        if write.answers is None or version.type.group == _GROUP or not webhooks:
            return
        request = request_about(self._api, operation, version, obj, old, write, of=of)
        calls = [(webhook, self._call(webhook, request, write)) for webhook in webhooks]
        missing = [call for _, call in calls if call is not None and call.key not in write.answers]
        if missing:
            raise UnansweredWebhook(missing)
        for webhook, call in calls:
            if call is not None:
                self._accept(webhook, write.answers[call.key], write)

    def _all(self, plural: str) -> list[_Webhook]:
        return [webhook for _, webhooks in sorted(self._configurations[plural].items()) for webhook in webhooks]

    def _mutated(
        self, webhook: _Webhook, request: Request, write: Write, answers: WebhookAnswers
    ) -> tuple[bool, Json | None]:
        """Return whether the webhook matches the request, and the object after the webhook's patch."""
        call = self._call(webhook, request, write, _digest(request.obj))
        if call is None:
            return False, request.obj
        answer = answers.get(call.key)
        if answer is None:
            raise UnansweredWebhook([call])
        if not self._accept(webhook, answer, write) or answer.patch is None or request.obj is None:
            return True, request.obj
        try:
            return True, json_patch(request.obj, answer.patch)  # type: ignore[arg-type]
        except PatchError as error:
            raise internal(f'admission webhook "{webhook.name}": {error}') from None

    def _call(self, webhook: _Webhook, request: Request, write: Write, about: str = "") -> WebhookCall | None:
        """Return the call of a webhook; None if the webhook does not match. Raise StatusError if a required call is
        impossible."""
        if not webhook.constraints["resourceRules"] or not matches(webhook.constraints, request):
            return None
        user = write.requester.user if write.requester is not None else CONTROLLER_MANAGER
        if webhook.conditions.conditions:
            matched, problem = Evaluation(webhook.conditions, request, None, user, self._rbac).applies()
            if problem and webhook.fails_closed:
                raise _bare(403, "Forbidden", f'admission webhook "{webhook.name}": {problem}')
            if problem or not matched:
                return None
        if write.dry_run and webhook.spec.get("sideEffects") not in ("None", "NoneOnDryRun"):
            raise _bare(400, "BadRequest", f'admission webhook "{webhook.name}" does not support dry run')
        parts = (
            webhook.configuration,
            webhook.name,
            request.operation,
            request.resource,
            request.namespace,
            request.name if request.old is not None else "",
            about or write.admitted or _digest(request.obj),
            _digest(request.old),
            user.name,
        )
        # The key omits generated fields: a repeated write has a new name, uid and time, and must not call again.
        key = "\n".join((webhook.constraints["of"], *parts))
        timeout = webhook.spec.get("timeoutSeconds")
        admission = {
            "uid": str(uuid.uuid4()),
            **admission_request(request, user),
            "object": request.obj,
            "oldObject": request.old,
            "options": {"kind": _OPTIONS.get(request.operation, "CreateOptions"), "apiVersion": "meta.k8s.io/v1"},
        }
        config = mapping(webhook.spec.get("clientConfig"))
        return WebhookCall(key, webhook.name, config, timeout if isinstance(timeout, int) else 10, admission)

    def _accept(self, webhook: _Webhook, answer: WebhookAnswer, write: Write) -> bool:
        """Return whether the webhook's response is usable. Raise the rejection of a denial, or of a missing
        response with failurePolicy Fail."""
        if answer.problem:
            if webhook.fails_closed:
                raise internal(f'failed calling webhook "{webhook.name}": {answer.problem}')
            return False
        write.warnings += answer.warnings
        if not answer.allowed:
            raise _denial(webhook.name, answer.status or {})
        return True


def _read(configuration: Json) -> list[_Webhook]:
    return list(_entries(configuration))


def _entries(configuration: Json) -> Iterator[_Webhook]:
    meta = mapping(configuration.get("metadata"))
    for item in sequence(configuration.get("webhooks")):
        spec = mapping(item)
        constraints = {
            "of": text(meta.get("uid")),
            "resourceRules": sequence(spec.get("rules")),
            "namespaceSelector": spec.get("namespaceSelector"),
            "objectSelector": spec.get("objectSelector"),
            "matchPolicy": spec.get("matchPolicy"),
        }
        name = text(spec.get("name"))
        yield _Webhook(text(meta.get("name")), name, spec, constraints, compile_conditions(name, spec))


def _digest(document: Json | None) -> str:
    return hashlib.blake2b(encode(document), digest_size=16).hexdigest() if document is not None else ""


def _denial(webhook: str, status: Json) -> StatusError:
    """Return the rejection with the message of the webhook that denied the write, as kube-apiserver returns it."""
    code = status.get("code")
    code = code if isinstance(code, int) and 400 <= code <= 599 else 400
    explanation = text(status.get("message")) or text(status.get("reason"))
    denied = f'admission webhook "{webhook}" denied the request'
    error = _bare(
        code,
        text(status.get("reason")),
        f"{denied}: {explanation}" if explanation else f"{denied} without explanation",
    )
    if isinstance(status.get("details"), dict):
        error.details = status["details"]
    return error


def _bare(code: int, reason: str, message: str) -> StatusError:
    return StatusError(code, reason, message)
