"""ValidatingAdmissionPolicies: CEL expressions that a write must satisfy if a ValidatingAdmissionPolicyBinding
selects it.

https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from phalanx.model.matching import all_hold
from phalanx.model.text.decoding import quoted
from phalanx_local.admission.expressions import CompiledPolicy, Evaluation, compile_policy
from phalanx_local.admission.policy_matching import Request, matches, request_about
from phalanx_local.authentication.authenticator import CONTROLLER_MANAGER, User
from phalanx_local.authorization import Rbac
from phalanx_local.errors import StatusError, forbidden
from phalanx_local.objects import Json, mapping, sequence, text
from phalanx_local.registry.api import Api
from phalanx_local.registry.resources import ResourceType, Version
from phalanx_local.registry.selectors import selector_from_object
from phalanx_local.storage.records import Change, view
from phalanx_local.storage.store import Collection
from phalanx_local.strategies.base import Write

_GROUP: Final = "admissionregistration.k8s.io"
POLICIES: Final = f"{_GROUP}/validatingadmissionpolicies"
BINDINGS: Final = f"{_GROUP}/validatingadmissionpolicybindings"
_CODES: Final = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}


class AdmissionPolicies:
    """Compiled policies, evaluated for writes that match their bindings."""

    def __init__(self, api: Api, rbac: Rbac) -> None:
        self._api = api
        self._rbac = rbac
        self._policies: dict[str, CompiledPolicy] = {}
        self._bindings: dict[str, Json] = {}
        api.store.listen(self._changed)

    def load(self) -> None:
        """Load the policies and bindings that the server restored from its data file."""
        for item in self._api.all(_GROUP, "validatingadmissionpolicies"):
            self._policies[item["metadata"]["name"]] = compile_policy(item)
        for item in self._api.all(_GROUP, "validatingadmissionpolicybindings"):
            self._bindings[item["metadata"]["name"]] = item

    def _changed(self, collection: Collection, change: Change) -> None:
        if collection.storage not in (POLICIES, BINDINGS):
            return
        name = change.key[1]
        if collection.storage == POLICIES:
            self._policies.pop(name, None)
            if change.new is not None:
                self._policies[name] = compile_policy(change.new.load())
        else:
            self._bindings.pop(name, None)
            if change.new is not None:
                self._bindings[name] = change.new.load()

    def admit(
        self,
        operation: str,
        version: Version,
        obj: Json | None,
        old: Json | None,
        write: Write,
        *,
        of: tuple[str, str, str],
    ) -> None:
        """Raise the rejection of the first policy that denies a write; add warnings of other policies to the
        write.

        Objects are in stored form (or in the form of the request, for some subresources); `of` is the namespace,
        the name and the subresource.
        """
        if not self._bindings or version.type.group == _GROUP:
            return
        request = request_about(self._api, operation, version, obj, old, write, of=of)
        user = write.requester.user if write.requester is not None else CONTROLLER_MANAGER
        refusal: StatusError | None = None
        for binding_name, binding in sorted(self._bindings.items()):
            spec = mapping(binding.get("spec"))
            policy = self._policies.get(text(spec.get("policyName")))
            if policy is None or not matches(policy.constraints, request):
                continue
            if not matches(spec.get("matchResources"), request):
                continue
            for reason, message in self._failures(policy, spec, request, user):
                found = self._act(policy, binding_name, spec, request, write, reason, message)
                refusal = refusal or found
        if refusal is not None:
            raise refusal

    def _failures(
        self, policy: CompiledPolicy, spec: Json, request: Request, user: User
    ) -> Iterator[tuple[str, str]]:
        """Yield reason and message of each validation of the policy that the write fails."""
        try:
            parameters = self._parameters(policy, mapping(spec.get("paramRef")), request)
        except LookupError as problem:
            if policy.fails_closed:
                yield "Invalid", str(problem)
            return
        for params in parameters:
            evaluation = Evaluation(policy, request, params, user, self._rbac)
            yield from evaluation.run()

    def _act(
        self,
        policy: CompiledPolicy,
        binding: str,
        spec: Json,
        request: Request,
        write: Write,
        reason: str,
        message: str,
    ) -> StatusError | None:
        actions = sequence(spec.get("validationActions"))
        where = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding}'"
        if "Warn" in actions:
            write.warnings.append(f"Validation failed for {where}: {message}")
        if "Deny" not in actions:
            return None
        denial = f"{where} denied request: {message}"
        error = forbidden(request.version.type, request.name, denial, [{"message": message}])
        error.reason, error.code = reason, _CODES.get(reason, 422)
        return error

    def _parameters(self, policy: CompiledPolicy, reference: Json, request: Request) -> list[Any]:
        """Return the values of `params`, one per evaluation of the policy. Raise LookupError if required parameters
        are missing."""
        if not policy.param_kind or not reference:
            return [None]
        group, _, version = text(policy.param_kind.get("apiVersion")).rpartition("/")
        kind = text(policy.param_kind.get("kind"))
        type_ = self._api.registry.find_kind(group, kind)
        if type_ is None:
            raise LookupError(f"failed to configure binding: no kind {kind} in group {quoted(group)}")
        namespace = ""
        if type_.namespaced:
            namespace = text(reference.get("namespace")) or request.namespace
        parameters = self._chosen(type_, version, reference, namespace)
        if not parameters and reference.get("parameterNotFoundAction") != "Allow":
            raise LookupError("failed to configure binding: no params found for policy binding with `Deny` action")
        return parameters

    def _chosen(self, type_: ResourceType, version: str, reference: Json, namespace: str) -> list[Any]:
        collection = self._api.collection(type_)
        seen = type_.versions.get(version, type_.preferred)
        name = text(reference.get("name"))
        if name:
            record = collection.records.get((namespace, name))
            return [view(record, seen)] if record is not None else []
        selector = selector_from_object(reference.get("selector") or {})
        records = [collection.records[key] for key in collection.keys(namespace)]
        return [view(item, seen) for item in records if selector is not None and all_hold(selector, item.labels)]
