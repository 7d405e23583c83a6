"""TokenReview, SubjectAccessReview and SelfSubjectReview: the user of a token, and the rights of a user.

https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
"""

from __future__ import annotations

from typing import Final

from phalanx_local.authentication.authenticator import Authenticator, User
from phalanx_local.authentication.tokens import ISSUER
from phalanx_local.authorization import Attributes, Rbac
from phalanx_local.errors import FieldCause, bad_request, invalid, wrong_value
from phalanx_local.objects import Json, dig, mapping, metadata, sequence, text
from phalanx_local.registry.resources import Version

_EITHER: Final = "exactly one of nonResourceAttributes or resourceAttributes must be specified"


class Reviewer:
    """Server of review kinds, whose objects are never stored."""

    def __init__(self, authenticator: Authenticator, rbac: Rbac) -> None:
        self._authenticator = authenticator
        self.rbac = rbac

    def review(self, body: Json, version: Version, namespace: str, user: User) -> Json:
        """Return a TokenReview, SubjectAccessReview, ... with its status. Raise 400 or 422 for an invalid
        review."""
        kind = version.type.kind
        spec = mapping(body.get("spec"))
        answer: Json = {
            "kind": kind,
            "apiVersion": version.api_version,
            "metadata": mapping(body.get("metadata")),
            "spec": spec,
        }
        if kind == "TokenReview":
            answer["status"] = self._token(spec)
        elif kind == "SelfSubjectReview":
            del answer["spec"]
            answer["status"] = {"userInfo": _user(user)}
        elif kind == "SelfSubjectRulesReview":
            answer["status"] = self._rules(spec, user)
        else:
            answer["status"] = self._access(body, spec, version, namespace, user)
        return answer

    def _token(self, spec: Json) -> Json:
        token = text(spec.get("token"))
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        audiences = [item for item in sequence(spec.get("audiences")) if isinstance(item, str)]
        token_user = self._authenticator.user_of(token)
        if token_user is None or (audiences and ISSUER not in audiences):
            return {"user": {}, "error": "[invalid bearer token, unknown or expired]"}
        return {"authenticated": True, "user": _user(token_user), "audiences": [ISSUER]}

    def _rules(self, spec: Json, user: User) -> Json:
        namespace = text(spec.get("namespace"))
        if not namespace:
            raise bad_request("no namespace on request")
        rules, problems = self.rbac.rules_for(user, namespace)
        shown = [rule.as_json() for rule in rules]
        status: Json = {
            "resourceRules": [rule for rule in shown if "resources" in rule],
            "nonResourceRules": [rule for rule in shown if "nonResourceURLs" in rule],
            "incomplete": bool(problems),
        }
        if problems:
            status["evaluationError"] = ", ".join(problems)
        return status

    def _access(self, body: Json, spec: Json, version: Version, namespace: str, user: User) -> Json:
        kind = version.type.kind
        causes = _check_access(kind, spec, namespace)
        if causes:
            raise invalid(version.type, text(metadata(body).get("name")), causes)
        if kind != "SelfSubjectAccessReview":
            groups = tuple(item for item in sequence(spec.get("groups")) if isinstance(item, str))
            user = User(text(spec.get("user")), groups, text(spec.get("uid")))
        decision = self.rbac.authorize(user, _asked(spec))
        status: Json = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        return status


def _asked(spec: Json) -> Attributes:
    url = spec.get("nonResourceAttributes")
    if isinstance(url, dict):
        return Attributes(text(url.get("verb")), path=text(url.get("path")))
    wanted = mapping(spec.get("resourceAttributes"))
    return Attributes(
        *(text(wanted.get(field)) for field in ("verb", "group", "resource", "subresource", "namespace", "name"))
    )


def _check_access(kind: str, spec: Json, namespace: str) -> list[FieldCause]:
    causes: list[FieldCause] = []
    about_url, about_resource = (
        isinstance(spec.get(field), dict) for field in ("nonResourceAttributes", "resourceAttributes")
    )
    if about_url and about_resource:
        causes.append(wrong_value("spec.nonResourceAttributes", spec["nonResourceAttributes"], _CANNOT_BOTH))
    elif not about_url and not about_resource:
        causes.append(wrong_value("spec.resourceAttributes", spec.get("resourceAttributes"), _EITHER))
    if kind == "SelfSubjectAccessReview":
        return causes
    if not text(spec.get("user")) and not sequence(spec.get("groups")):
        causes.append(wrong_value("spec.user", "", "at least one of user or group must be specified"))
    if kind == "LocalSubjectAccessReview":
        if about_url:
            causes.append(
                wrong_value(
                    "spec.nonResourceAttributes",
                    spec["nonResourceAttributes"],
                    "disallowed on this kind of request",
                )
            )
        named = text(dig(spec, "resourceAttributes", "namespace"))
        if about_resource and named != namespace:
            why = f"must match metadata.namespace: {namespace}"
            causes.append(wrong_value("spec.resourceAttributes.namespace", named, why))
    return causes


_CANNOT_BOTH: Final = "cannot be specified in combination with resourceAttributes"


def _user(user: User) -> Json:
    shown: Json = {"username": user.name}
    if user.uid:
        shown["uid"] = user.uid
    shown["groups"] = list(user.groups)
    if user.extra:
        shown["extra"] = {key: list(values) for key, values in user.extra.items()}
    return shown
