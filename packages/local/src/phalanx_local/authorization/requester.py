"""Requester of a write: the user and the user's rights, for admission."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from phalanx_local.authentication.authenticator import User
from phalanx_local.authorization.attributes import SUPERUSERS, Attributes, Decision, forbidden_request
from phalanx_local.authorization.rules import PolicyRule


class Rights(Protocol):
    """Interface of the authorizer that admission uses (`Rbac` implements it)."""

    def authorize(self, user: User, asked: Attributes) -> Decision: ...

    def rules_for(self, user: User, namespace: str) -> tuple[list[PolicyRule], list[str]]: ...

    def role_rules(self, kind: str, name: str, namespace: str) -> tuple[PolicyRule, ...] | None: ...


class Requester(NamedTuple):
    """User of a request, with the authorizer that knows the user's rights."""

    user: User
    rbac: Rights

    @property
    def unlimited(self) -> bool:
        return SUPERUSERS in self.user.groups

    def may(self, asked: Attributes) -> bool:
        return self.rbac.authorize(self.user, asked).allowed

    def require(self, asked: Attributes) -> None:
        """Raise 403 unless the user has the right to make the request `asked`."""
        decision = self.rbac.authorize(self.user, asked)
        if not decision.allowed:
            raise forbidden_request(self.user, asked, decision.reason)
