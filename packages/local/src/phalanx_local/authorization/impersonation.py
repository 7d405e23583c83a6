"""Impersonate headers: acting as another user, which requires a right for each header.

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
"""

from __future__ import annotations

from typing import Final

from multidict import CIMultiDictProxy

from phalanx_local.authentication.authenticator import User, account_groups
from phalanx_local.authorization.attributes import Attributes, forbidden_request
from phalanx_local.authorization.rbac import Rbac
from phalanx_local.errors import bad_request, internal

_USER: Final = "Impersonate-User"
_GROUP: Final = "Impersonate-Group"
_UID: Final = "Impersonate-Uid"
_PREFIX: Final = "impersonate-"
_EXTRA: Final = "impersonate-extra-"
_AUTHENTICATION: Final = "authentication.k8s.io"
_ACCOUNT: Final = "system:serviceaccount:"
_ANONYMOUS: Final = "system:anonymous"
_EVERYONE: Final = ("system:authenticated", "system:unauthenticated")


def impersonated(user: User, headers: CIMultiDictProxy[str], rbac: Rbac) -> User:
    """Return the impersonated user of a request, else the authenticated user. Raise 403 without the right to
    impersonate."""
    if _USER not in headers:
        if _GROUP in headers or _UID in headers:
            raise internal("requested groups, uid or extra without impersonating a user")
        return user
    name = headers.get(_USER, "")
    if not all(value.isprintable() for header, value in headers.items() if header.lower().startswith(_PREFIX)):
        raise bad_request("an Impersonate header contains unprintable characters")
    account = _account(name)
    if account is not None:
        wanted = [Attributes("impersonate", "", "serviceaccounts", "", *account)]
    else:
        wanted = [Attributes("impersonate", "", "users", "", "", name)]
    groups = list(headers.getall(_GROUP, []))
    wanted += [Attributes("impersonate", "", "groups", "", "", group) for group in groups]
    uid = headers.get(_UID, "")
    if uid:
        wanted.append(Attributes("impersonate", _AUTHENTICATION, "uids", "", "", uid))
    extra: dict[str, tuple[str, ...]] = {}
    for header, value in headers.items():
        if header.lower().startswith(_EXTRA):
            key = header.lower().removeprefix(_EXTRA)
            wanted.append(Attributes("impersonate", _AUTHENTICATION, "userextras", key, "", value))
            extra[key] = (*extra.get(key, ()), value)
    for asked in wanted:
        decision = rbac.authorize(user, asked)
        if not decision.allowed:
            raise forbidden_request(user, asked, decision.reason)
    if not groups and account is not None:
        groups = list(account_groups(account[0]))
    if not any(group in _EVERYONE for group in groups):
        groups.append(_EVERYONE[name == _ANONYMOUS])
    return User(name, tuple(groups), uid, extra)


def _account(user: str) -> tuple[str, str] | None:
    """Return namespace and name of the service account with this user name; None for other users."""
    if not user.startswith(_ACCOUNT):
        return None
    namespace, separator, name = user.removeprefix(_ACCOUNT).partition(":")
    return (namespace, name) if namespace and separator and name and ":" not in name else None
