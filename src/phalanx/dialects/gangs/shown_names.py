"""Shown names of all gangs, kept current as gangs come and go."""

from __future__ import annotations

from phalanx.model.gang import Gang, GangKey, shown_name
from phalanx.model.gang_names import GangNameFacts, facts_of, shown_names

# Where so many gangs have one name, each keeps the name that it has: a renaming costs as many events.
_MOST_NAMESAKES = 64


class ShownNames:
    """Names of gangs as views show them. Only gangs with the same name, or of the same job, influence each
    other."""

    def __init__(self) -> None:
        self._facts: dict[GangKey, GangNameFacts] = {}
        # By namespace and name. Tuples, as most have one entry, and few names have many.
        self._namesakes: dict[str, dict[str, tuple[GangKey, ...]]] = {}

    def set(self, key: GangKey, gang: Gang) -> dict[GangKey, str]:
        """Add or update a gang. Return its shown name, and those of the gangs with which it shares its name."""
        facts = facts_of(key, gang)
        if self._facts.get(key) != facts:
            self._forget(key)
            self._facts[key] = facts
            names = self._namesakes.setdefault(key.namespace, {})
            names[facts.name] = (*names.get(facts.name, ()), key)
        return self._shown(key.namespace, facts.name, key)

    def remove(self, key: GangKey) -> dict[GangKey, str]:
        """Remove a gang. Return the shown names of the gangs that shared its name."""
        facts = self._facts.get(key)
        if facts is None:
            return {}
        self._forget(key)
        return self._shown(key.namespace, facts.name, None)

    def _forget(self, key: GangKey) -> None:
        facts = self._facts.pop(key, None)
        if facts is None:
            return
        names = self._namesakes[key.namespace]
        names[facts.name] = tuple([other for other in names[facts.name] if other != key])
        if not names[facts.name]:
            del names[facts.name]
        if not names:
            del self._namesakes[key.namespace]

    def _shown(self, namespace: str, name: str, key: GangKey | None) -> dict[GangKey, str]:
        """Return the shown names of all gangs of one name, for `Gang.shown`: "" for a name that follows from the
        key."""
        keys = self._namesakes.get(namespace, {}).get(name, ())
        if len(keys) == 1 and keys[0] == key:
            return {key: "" if (text := self._facts[key].short) == shown_name(key.name) else text}
        if len(keys) > _MOST_NAMESAKES:
            keys = (key,) if key is not None else ()
        names = shown_names({each: self._facts[each] for each in keys})
        return {each: "" if text == shown_name(each.name) else text for each, text in names.items()}
