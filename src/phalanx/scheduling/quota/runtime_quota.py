"""Koordinator's runtime quota: the amounts that each quota of a tree can use while idle siblings lend theirs.

Source: koordinator, pkg/scheduler/plugins/elasticquota/core/runtime_quota_calculator.go and scale_minquota.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from phalanx.scheduling.quota.water_filling import largest_remainders


class RuntimeQuota(NamedTuple):
    """One resource of a quota among its siblings. `limited` is min(request, max).

    An unused `minimum` is lent unless `lends` is False. It shrinks if it `scales` and all minima exceed the total.
    `guarantee` does not shrink.
    """

    name: str
    weight: int
    minimum: int
    limited: int
    guarantee: int = 0
    lends: bool = True
    scales: bool = True


@dataclass(slots=True)
class QuotaNode:
    """Quota of a Koordinator tree with all resources; only resources in `maximum` are computed.

    `request` is the requests of its own pods, bound ones included; `used` is the usage of bound pods. A parent adds
    the sums of its children. A resource without a weight is weighted by its maximum. A quota with its own `total`
    takes no part among its siblings: its children share that total up to the quota's maximum.
    """

    name: str
    minimum: Mapping[str, int] = field(default_factory=dict)
    maximum: Mapping[str, int] = field(default_factory=dict)
    request: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    lends: bool = True
    scales: bool = True
    total: Mapping[str, int] | None = None
    children: list[QuotaNode] = field(default_factory=list)


def runtime_quotas(total: int, quotas: Sequence[RuntimeQuota], *, scaling: bool = True) -> dict[str, int]:
    """Return for each child quota of a parent that has `total` the amount of one resource that it can use, by name.

    1. Where the minima exceed the total and `scaling` is on, minima that scale shrink in proportion.
    2. Each quota gets the larger of its minimum and its guarantee, but at most `limited` if it lends.
    3. The rest goes by weight to quotas that request more, until all requests are met or the rest is used up.
    Indivisible units go to the largest remainders, ties to the first names.
    """
    minima = _scaled(total, quotas) if scaling else {quota.name: quota.minimum for quota in quotas}
    amounts: dict[str, int] = {}
    wanting: list[RuntimeQuota] = []
    for quota in quotas:
        base = max(minima[quota.name], quota.guarantee)
        if quota.limited > base:
            wanting.append(quota)
            amounts[quota.name] = base
        else:
            amounts[quota.name] = quota.limited if quota.lends else base
    pool = total - sum(amounts.values())
    while pool > 0:
        weight = sum(quota.weight for quota in wanting)
        if not weight:
            break
        remainders = []
        for quota in wanting:
            part, remainder = divmod(quota.weight * pool, weight)
            amounts[quota.name] += part
            remainders.append((remainder, quota.name))
        for name in largest_remainders(sum(remainder for remainder, _ in remainders) // weight, remainders):
            amounts[name] += 1
        pool = 0
        still_wanting = []
        for quota in wanting:
            surplus = amounts[quota.name] - quota.limited
            if surplus < 0:
                still_wanting.append(quota)
            else:
                amounts[quota.name] = quota.limited
                pool += surplus
        wanting = still_wanting
    return amounts


def runtime_tree(
    total: Mapping[str, int], roots: Sequence[QuotaNode], *, scaling: bool = True, guarantee_usage: bool = False
) -> dict[str, dict[str, int]]:
    """Return for each quota of a tree the amounts that it can use, by name and resource, for the resources in its
    maximum.

    `roots` share `total`; the children of a parent share its amount. A parent's request is the sum of its
    children's limited requests, and at least its minimum if it does not lend. With `guarantee_usage`
    (ElasticQuotaGuaranteeUsage) no quota gets less than its usage: guarantee = max(minimum, used). A parent whose
    maximum lacks a resource passes its share on. Names are unique in the tree.
    """
    runtimes: dict[str, dict[str, int]] = {node.name: {} for node in _all(roots)}
    resources = sorted({resource for node in _all(roots) for resource in node.maximum})
    for resource in resources:
        quotas: dict[str, RuntimeQuota] = {}
        for node in _bottom_up(roots):
            quotas[node.name] = _quota(node, resource, quotas, guarantee_usage)
        levels = [(total.get(resource, 0), roots)]
        while levels:
            amount, siblings = levels.pop()
            sharing = [quotas[node.name] for node in siblings if node.total is None]
            shares = runtime_quotas(amount, sharing, scaling=scaling)
            for node in siblings:
                named = resource in node.maximum
                handed = shares[node.name] if named and node.total is None else amount
                if node.total is not None:
                    handed = node.total.get(resource, 0)
                    handed = min(handed, node.maximum.get(resource, handed))
                if named:
                    runtimes[node.name][resource] = handed
                if node.children:
                    levels.append((handed, node.children))
    return runtimes


def _scaled(total: int, quotas: Sequence[RuntimeQuota]) -> dict[str, int]:
    minima = {quota.name: quota.minimum for quota in quotas}
    if sum(minima.values()) <= total:
        return minima
    scalable = sum(quota.minimum for quota in quotas if quota.scales)
    left = max(0, total - (sum(minima.values()) - scalable))
    for quota in quotas:
        if quota.scales and scalable:
            minima[quota.name] = left * quota.minimum // scalable
    return minima


def _quota(
    node: QuotaNode, resource: str, below: Mapping[str, RuntimeQuota], guarantee_usage: bool
) -> RuntimeQuota:
    children = [below[child.name] for child in node.children]
    minimum = node.minimum.get(resource, 0)
    request = node.request.get(resource, 0) + sum(child.limited for child in children)
    if not node.lends:
        request = max(request, minimum)
    maximum = node.maximum.get(resource)
    guarantee = 0
    if guarantee_usage:
        guarantee = max(minimum, node.used.get(resource, 0) + sum(child.guarantee for child in children))
    return RuntimeQuota(
        node.name,
        node.weights.get(resource, maximum or 0),
        minimum,
        request if maximum is None else min(request, maximum),
        guarantee,
        node.lends,
        node.scales,
    )


def _all(roots: Iterable[QuotaNode]) -> Iterator[QuotaNode]:
    stack = list(roots)
    while stack:
        node = stack.pop()
        yield node
        stack.extend(node.children)


def _bottom_up(roots: Iterable[QuotaNode]) -> list[QuotaNode]:
    return list(_all(roots))[::-1]
