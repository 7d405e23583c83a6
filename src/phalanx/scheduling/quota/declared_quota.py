"""Declared limits that more nodes do not raise."""

from __future__ import annotations

from phalanx.cluster.accounts import ChargePath
from phalanx.cluster.pods.records import GangRecord
from phalanx.model.account import AccountKey, Tree
from phalanx.scheduling.quota.limits import UNLIMITED
from phalanx.scheduling.quota.queue_tree import QueueSession, QueueShareRequests
from phalanx.scheduling.quota.quota_check import QuotaCheck
from phalanx.scheduling.quota.resource_quota_claims import resource_quota_claims


def fits_declared_quota(
    session: QueueSession, quota_check: QuotaCheck, charge_path: ChargePath, gang: GangRecord
) -> bool:
    """Return whether the minResources of a gang fit every declared limit: capabilities, quotas and ResourceQuotas.

    Limits that follow from the size of the cluster do not count.
    """
    spec = gang.spec
    assert spec is not None
    wanted = [(name, amount) for name, amount in spec.min_resources or () if amount > 0]
    queue = session.ledger.accounts.get(AccountKey(Tree.QUEUE, spec.queue))
    claims = session.memo("claims on queues", QueueShareRequests)
    for account in queue.lineage() if queue is not None else ():
        claimed = claims.of(session, account)
        for name, amount in wanted:
            if account.used.get(name, 0) + claimed.get(name, 0) + amount > account.capability.get(name, UNLIMITED):
                return False
    for account_limit in quota_check.account_limits(charge_path):
        limit, used = account_limit.limit, account_limit.account.used
        for name, amount in wanted:
            if used.get(name, 0) + amount > limit.max.get(name, UNLIMITED):
                return False
            limited = name in limit.limits and not account_limit.grows_with_nodes(name)
            if limited and account_limit.refuses(name, amount):
                return False
    return all(amount <= room for _, _, amount, room in resource_quota_claims(session.state, gang))
