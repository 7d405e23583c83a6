"""Settings of the policy file under the key `phalanx`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phalanx.model.account import SelfProtection
from phalanx.model.policy_names import FORMER_DIALECT_KEYS
from phalanx.model.text.decoding import quoted
from phalanx.scheduling.framework.policy import AUTOSCALERS, POD_EVENTS
from phalanx.scheduling.framework.queue_policies import parse_queue_policies
from phalanx.scheduling.framework.unknown_keys import check_keys

# Accepted words of each setting; the first one is the default.
_WORDS = {
    "partialGang": ("keep", "release"),
    "evictions": ("delete", "eviction-api"),
    "selfProtection": ("guaranteed", "none", "all"),
    "exceededRunTimes": ("report", "evict-when-needed", "kill"),
    "maintenanceSignals": ("honour", "ignore"),
    "podEvents": POD_EVENTS,
    "autoscaler": AUTOSCALERS,
}
_KEYS = (*_WORDS, "cycleBudgetMilliseconds", "dialects", "createPodGroups", "queues")


def own_settings(own: object, errors: list[str], inactive: list[str]) -> dict[str, Any]:
    """Return the settings as fields of `Policy`, with the defaults for absent and invalid values."""
    if not isinstance(own, Mapping):
        errors.append("phalanx: expected a mapping")
        own = {}
    check_keys(own, _KEYS, "phalanx.", errors)
    words = {key: _word(own, key, accepted, errors) for key, accepted in _WORDS.items()}
    budget = own.get("cycleBudgetMilliseconds", 100)
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
        errors.append(f"phalanx.cycleBudgetMilliseconds: {quoted(budget)} is not a whole number of at least 1")
        budget = 100
    create = own.get("createPodGroups", True)
    if not isinstance(create, bool):
        errors.append(f"phalanx.createPodGroups: {quoted(create)} is not true or false")
        create = True
    return {
        "partial_gang": words["partialGang"],
        "cycle_budget": budget / 1000,
        "dialects": _dialects(own, errors, inactive),
        "evictions": words["evictions"],
        "self_protection": SelfProtection(words["selfProtection"]),
        "create_pod_groups": create,
        "exceeded_run_times": words["exceededRunTimes"],
        "heeds_maintenance_signals": words["maintenanceSignals"] == "honour",
        "pod_events": words["podEvents"],
        "autoscaler": words["autoscaler"],
        "queues": parse_queue_policies(own["queues"], errors) if own.get("queues") is not None else {},
    }


def _word(own: Mapping[str, object], key: str, words: Sequence[str], errors: list[str]) -> str:
    stated = own.get(key, words[0])
    if stated in words:
        return str(stated)
    expected = f"{', '.join(words[:-1])} or {words[-1]}"
    errors.append(f"phalanx.{key}: {quoted(stated)} is unknown; expected {expected}")
    return words[0]


def _dialects(own: Mapping[str, object], errors: list[str], inactive: list[str]) -> dict[str, object]:
    dialects = own.get("dialects") or {}
    if not isinstance(dialects, Mapping):
        errors.append("phalanx.dialects: expected a mapping")
        return {}
    renamed = dict(dialects)
    for former, name in FORMER_DIALECT_KEYS.items():
        if former in renamed:
            renamed.setdefault(name, renamed.pop(former))
            inactive.append(
                f"phalanx.dialects: {former} was renamed to {name}; it is accepted until a later release"
            )
    return renamed
