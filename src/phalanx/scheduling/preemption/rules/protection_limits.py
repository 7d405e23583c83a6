"""What administrators say about how far pods may keep themselves from being evicted."""

from __future__ import annotations

import msgspec

from phalanx.cluster.accounts import ChargePath
from phalanx.model.account import SelfProtection, Tree

# From the strictest to the laxest.
_STRICTNESS = tuple(SelfProtection)


class ProtectionRule(msgspec.Struct, frozen=True):
    """How far a payer's pods may protect themselves, by whose `word`; for at most `limit` seconds from their
    binding on (0: without limit), by whose (`limiter`)."""

    reach: SelfProtection
    word: str
    limit: int = 0
    limiter: str = ""


def protection_rule(payer: ChargePath, default: SelfProtection) -> ProtectionRule:
    """In every tree the account nearest to the leaf decides that says anything, among trees the strictest word; of
    all limits the shortest holds."""
    nearest: dict[Tree, tuple[SelfProtection, str]] = {}
    limits: list[tuple[int, str]] = []
    for account in payer.path:
        noun = account.spec
        if noun is not None and noun.self_protection is not None:
            nearest.setdefault(account.key.tree, (noun.self_protection, account.label))
        if noun is not None and noun.max_protection:
            limits.append((noun.max_protection, account.label))
    stated = min(nearest.values(), key=lambda each: _STRICTNESS.index(each[0]), default=(default, "the policy"))
    return ProtectionRule(*stated, *min(limits, default=(0, "")))
