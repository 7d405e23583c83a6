"""Node selectors, taints, tolerations and host ports of core/v1."""

from __future__ import annotations

import msgspec

from phalanx.model.text.decoding import parse_whole


class Requirement(msgspec.Struct, frozen=True, cache_hash=True):
    """Match expression of a selector: `key` `operator` `values` (In, NotIn, Exists, DoesNotExist, Gt, Lt)."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(msgspec.Struct, frozen=True, cache_hash=True):
    """Term of a node selector: expressions and fields that must all match. An empty term matches nothing, as in
    Kubernetes.

    `fields` support only `metadata.name`. `invalid` is the reason why a term never matches (for example a bad
    operator); other terms of the selector still count.
    """

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()
    invalid: str = ""


class PreferredTerm(msgspec.Struct, frozen=True, cache_hash=True):
    weight: int
    term: NodeSelectorTerm


class Toleration(msgspec.Struct, frozen=True, cache_hash=True):
    """Toleration of a pod: `operator` is Equal, Exists, Lt or Gt; an empty `effect` tolerates all, an empty `key`
    needs Exists."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Taint(msgspec.Struct, frozen=True, cache_hash=True):
    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class HostPort(msgspec.Struct, frozen=True, cache_hash=True):
    """Host port of a pod. An `ip` of "" or 0.0.0.0 conflicts with every address."""

    port: int
    protocol: str = "TCP"
    ip: str = ""

    def conflicts_with(self, other: HostPort) -> bool:
        if (self.port, self.protocol) != (other.port, other.protocol):
            return False
        return self.is_wildcard or other.is_wildcard or self.ip == other.ip

    @property
    def is_wildcard(self) -> bool:
        return self.ip in ("", "0.0.0.0")


def parse_int64(text: str) -> int | None:
    """Parse an integer like Go's `strconv.ParseInt(text, 10, 64)`: no spaces, no underscores, only ASCII digits."""
    return parse_whole(text)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a toleration matches a taint (k8s.io/component-helpers `ToleratesTaint`, with Lt and Gt)."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if not toleration.key and toleration.operator != "Exists":
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "Equal" | "":
            return toleration.value == taint.value
        case "Lt" | "Gt":
            limit, actual = parse_int64(toleration.value), parse_int64(taint.value)
            if limit is None or actual is None:
                return False
            return actual < limit if toleration.operator == "Lt" else actual > limit
    return False
