"""Answers of the plugins about accounts, outside of a cycle."""

from __future__ import annotations

from phalanx.cluster.accounts import AccountRecord
from phalanx.model.account import AccountKey, Tree
from phalanx.model.decisions import Plan
from phalanx.scheduling.framework.plugin import Plugin
from phalanx.scheduling.scheduler import never
from phalanx.scheduling.session.session import Memo, Session

from .scenario import Scenario

_GPU = "nvidia.com/gpu"


def policy(*plugins: str) -> str:
    """Return a policy with these plugins and the settings that every cluster needs, from YAML."""
    named = ", ".join(f"{{{plugin}}}" for plugin in ("name: gang", *plugins, "name: predicates", "name: nodeorder"))
    return f'actions: "enqueue, allocate, backfill"\ntiers: [{{plugins: [{named}]}}]'


def queue(name: str) -> AccountKey:
    return AccountKey(Tree.QUEUE, name)


class Desk:
    """Session over the present state of a scenario; `gpu` is short for nvidia.com/gpu."""

    def __init__(self, scenario: Scenario) -> None:
        scheduler = scenario.scheduler
        self._policy = scheduler.policy
        self.session = Session(
            scenario.state,
            scheduler.plugin_runtime,
            scheduler.placer,
            scheduler.queue,
            Plan(0),
            scenario.now,
            never,
            Memo(),
        )

    def plugin(self, name: str) -> Plugin:
        entries = (*self._policy.plugins, *self._policy.standing_plugins)
        return next(entry.plugin for entry in entries if entry.plugin.name == name)

    def account(self, key: AccountKey) -> AccountRecord:
        return self.session.ledger.accounts[key]

    def limit(self, plugin: str, key: AccountKey) -> tuple[str, dict[str, int]] | None:
        """Return (name, limits) of one plugin, without unlimited resources."""
        found = self.plugin(plugin).limit(self.session, self.account(key))
        if found is None:
            return None
        return found.word, {"gpu" if name == _GPU else name: amount for name, amount in found.limits.items()}

    def limits(self, plugin: str, key: AccountKey) -> dict[str, int] | None:
        found = self.limit(plugin, key)
        return found[1] if found is not None else None

    def order(self, plugin: str, *names: str) -> list[str]:
        """Return the queues in the order of the plugin; equal queues stay in the given order."""
        speaker = self.plugin(plugin)
        return sorted(names, key=lambda name: speaker.queue_order(self.session, self.account(queue(name))))
