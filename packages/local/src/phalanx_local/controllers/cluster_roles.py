"""Updates of the rules of aggregated ClusterRoles from the roles that they select."""

from __future__ import annotations

from collections.abc import Hashable

from phalanx_local.authorization.aggregation import aggregate, is_aggregated
from phalanx_local.authorization.rbac import CLUSTER_ROLES
from phalanx_local.controllers.base import Controller
from phalanx_local.storage.records import Change
from phalanx_local.storage.store import Collection


class ClusterRoleAggregation(Controller):
    """Controller of aggregated ClusterRoles; keys are names of roles. A change of any ClusterRole can affect each
    of them."""

    def observe(self, collection: Collection, change: Change) -> None:
        if collection.storage == CLUSTER_ROLES:
            self._add_all(collection)

    def resync(self) -> None:
        collection = self.api.store.collections.get(CLUSTER_ROLES)
        if collection is not None:
            self._add_all(collection)

    def _add_all(self, collection: Collection) -> None:
        for record in collection.records.values():
            if is_aggregated(record.load()):
                self.add(record.name)

    def reconcile(self, key: Hashable) -> None:
        record = self.current(CLUSTER_ROLES, ("", str(key)))
        if record is not None:
            aggregate(self.api, record)
