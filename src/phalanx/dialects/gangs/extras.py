"""Extra gang properties of Koordinator, ACK, Volcano and Kueue, which pods and PodGroups of any dialect can state.

Each key is valid as label and as annotation, on pods and on PodGroups (docs/rules/coscheduling.md, 1.2): a JSON
list is not a valid label value, yet ACK documents it as a label.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.model.gang import GangKey, MatchPolicy
from phalanx.model.text.decoding import decode_json

NAME = "gang.scheduling.koordinator.sh/name"
MIN_AVAILABLE = "gang.scheduling.koordinator.sh/min-available"
TOTAL_NUMBER = "gang.scheduling.koordinator.sh/total-number"
MODE = "gang.scheduling.koordinator.sh/mode"
WAITING_TIME = "gang.scheduling.koordinator.sh/waiting-time"
GROUPS = ("gang.scheduling.koordinator.sh/groups", "pod-group.scheduling.sigs.k8s.io/groups")
MATCH_POLICY = (
    "gang.scheduling.koordinator.sh/match-policy",
    "pod-group.scheduling.sigs.k8s.io/match-policy",
)
TOPOLOGY_SPEC = "gang.scheduling.koordinator.sh/network-topology-spec"
# Volcano's keys; it reads both spellings.
SLA_WAITING_TIME = ("volcano.sh/sla-waiting-time", "sla-waiting-time")

# Our keys for members that a leader creates once it runs.
EXPECTED_MEMBERS = "phalanx.dev/expected-members"
EXPECTED_REQUESTS = "phalanx.dev/expected-requests"
EXPECTED_TIMEOUT = "phalanx.dev/expected-timeout"
# Our key for gangs in which a joining or leaving member restarts all members, so that members join in batches.
SCALE_UP_DELAY = "phalanx.dev/scale-up-delay"
# Its name before 0.1.0: still read, with a notice.
FORMER_SCALE_UP_DELAY = "phalanx.dev/growth-delay"
FROM_MIN_RESOURCES, EXPECT_NOBODY = "min-resources", "none"
# Spark's label: its drivers create executors.
SPARK_ROLE = "spark-role"
# LeaderWorkerSet's labels: the index of a pod in its group, and the size of the group.
LWS_WORKER_INDEX, LWS_SIZE = "leaderworkerset.sigs.k8s.io/worker-index", "leaderworkerset.sigs.k8s.io/size"

TIER_MODE = "volcano.sh/network-topology-mode"
HIGHEST_TIER = "volcano.sh/network-topology-highest-tier"
# Kueue's annotations; their values are node labels.
REQUIRED_LEVEL = "kueue.x-k8s.io/podset-required-topology"
PREFERRED_LEVEL = "kueue.x-k8s.io/podset-preferred-topology"
UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"
SLICE_LEVEL = "kueue.x-k8s.io/podset-slice-required-topology"

_NEARNESS = (TOPOLOGY_SPEC, TIER_MODE, HIGHEST_TIER, REQUIRED_LEVEL, PREFERRED_LEVEL, UNCONSTRAINED, SLICE_LEVEL)
_EXPECTED = (
    EXPECTED_MEMBERS,
    EXPECTED_REQUESTS,
    EXPECTED_TIMEOUT,
    SCALE_UP_DELAY,
    FORMER_SCALE_UP_DELAY,
    SPARK_ROLE,
    LWS_SIZE,
)
_ANY = frozenset(
    (TOTAL_NUMBER, MODE, WAITING_TIME, *GROUPS, *MATCH_POLICY, *_NEARNESS, *SLA_WAITING_TIME, *_EXPECTED)
)


class Stated(msgspec.Struct, frozen=True, gc=False):
    """Value of a gang property and its origin, as quoted in messages: `label pod-group/name`."""

    key: str
    value: str


class Extras(msgspec.Struct, frozen=True, cache_hash=True):
    """Unparsed statements of one object; None for a missing or empty value. `whole_size` is the size of a group
    that its leader states, itself included."""

    match_policy: Stated | None = None
    mode: Stated | None = None
    waiting_time: Stated | None = None
    groups: Stated | None = None
    total_number: Stated | None = None
    topology: Stated | None = None
    sla_waiting_time: Stated | None = None
    tier_mode: Stated | None = None
    highest_tier: Stated | None = None
    required_level: Stated | None = None
    preferred_level: Stated | None = None
    unconstrained: Stated | None = None
    slice_level: Stated | None = None
    expected_members: Stated | None = None
    whole_size: Stated | None = None
    expected_requests: Stated | None = None
    expected_timeout: Stated | None = None
    scale_up_delay: Stated | None = None


NO_EXTRAS = Extras()


def read_extras(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Extras:
    """Return the extra gang properties in an object's labels and annotations; annotations have precedence over
    labels, Koordinator's keys over ACK's."""
    if _ANY.isdisjoint(labels) and _ANY.isdisjoint(annotations):
        return NO_EXTRAS

    def stated(*keys: str) -> Stated | None:
        for key in keys:
            for place, values in (("annotation", annotations), ("label", labels)):
                value = values.get(key, "")
                if value:
                    return Stated(f"{place} {key}", value)
        return None

    expected = stated(EXPECTED_MEMBERS)
    if expected is None and labels.get(SPARK_ROLE) == "driver":
        expected = Stated(f"label {SPARK_ROLE}", FROM_MIN_RESOURCES)
    return Extras(
        match_policy=stated(*MATCH_POLICY),
        mode=stated(MODE),
        waiting_time=stated(WAITING_TIME),
        groups=stated(*GROUPS),
        total_number=stated(TOTAL_NUMBER),
        topology=stated(TOPOLOGY_SPEC),
        sla_waiting_time=stated(*SLA_WAITING_TIME),
        tier_mode=stated(TIER_MODE),
        highest_tier=stated(HIGHEST_TIER),
        required_level=stated(REQUIRED_LEVEL),
        preferred_level=stated(PREFERRED_LEVEL),
        unconstrained=stated(UNCONSTRAINED),
        slice_level=stated(SLICE_LEVEL),
        expected_members=expected,
        whole_size=stated(LWS_SIZE) if labels.get(LWS_WORKER_INDEX) == "0" else None,
        expected_requests=stated(EXPECTED_REQUESTS),
        expected_timeout=stated(EXPECTED_TIMEOUT),
        scale_up_delay=stated(SCALE_UP_DELAY, FORMER_SCALE_UP_DELAY),
    )


def parse_match_policy(text: str) -> MatchPolicy:
    """Parse a gang's match policy, which says which members count towards the minimum. Raise ValueError with
    advice."""
    try:
        return MatchPolicy(text)
    except ValueError:
        raise ValueError(f"write one of {', '.join(MatchPolicy)}") from None


def parse_groups(text: str) -> tuple[GangKey, ...]:
    """Parse a gang group, a JSON list of "namespace/name", into gang keys. Raise ValueError with advice."""
    advice = 'write a JSON list of "namespace/name", such as ["default/ps", "default/worker"]'
    try:
        entries = decode_json(text, list[str])
    except msgspec.DecodeError:
        raise ValueError(advice) from None
    keys = []
    for entry in entries:
        namespace, slash, name = entry.partition("/")
        if not (namespace and slash and name) or "/" in name:
            raise ValueError(advice)
        keys.append(GangKey(namespace, name))
    return tuple(keys)
