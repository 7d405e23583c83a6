"""On whose behalf something is written: what admission may ask about him."""

from __future__ import annotations

from typing import NamedTuple

from phalanx_local.authentication import User
from phalanx_local.authorization.attributes import Attributes, forbidden_request
from phalanx_local.authorization.rbac import SUPERUSERS, Rbac


class Requester(NamedTuple):
    """The user of a request and the authorizer that knows his rights."""

    user: User
    rbac: Rbac

    @property
    def unlimited(self) -> bool:
        return SUPERUSERS in self.user.groups

    def may(self, asked: Attributes) -> bool:
        return self.rbac.authorize(self.user, asked).allowed

    def require(self, asked: Attributes) -> None:
        """Raises 403 unless the user may."""
        decision = self.rbac.authorize(self.user, asked)
        if not decision.allowed:
            raise forbidden_request(self.user, asked, decision.reason)
