"""Reviews of identity and of rights: every authenticated user may do everything."""

from __future__ import annotations

from phalanx.local.authentication import Authenticator, User
from phalanx.local.objects import Json, dig, mapping, text
from phalanx.local.resources import Version


def review(body: Json, version: Version, user: User, authenticator: Authenticator) -> Json:
    """The review with its status filled in."""
    kind = version.type.kind
    answer: Json = {
        "kind": kind,
        "apiVersion": version.api_version,
        "metadata": mapping(body.get("metadata")),
        "spec": mapping(body.get("spec")),
    }
    if kind == "TokenReview":
        found = authenticator.user_of(text(dig(body, "spec", "token")))
        answer["status"] = (
            {"authenticated": True, "user": _user(found)} if found is not None else {"authenticated": False}
        )
    elif kind == "SelfSubjectReview":
        del answer["spec"]
        answer["status"] = {"userInfo": _user(user)}
    elif kind == "SelfSubjectRulesReview":
        answer["status"] = {
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": False,
        }
    else:
        answer["status"] = {"allowed": True}
    return answer


def _user(user: User) -> Json:
    return {"username": user.name, "groups": list(user.groups)}
