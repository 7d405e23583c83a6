"""The members of one gang, folded into the few distinct things that they say."""

from __future__ import annotations

import heapq
from collections.abc import KeysView

from phalanx.dialects.gangs.agreement import Member, MemberDeclaration


class Members:
    """Pods by voice, with the oldest pod of each voice at hand. Adding and removing cost O(log n)."""

    def __init__(self) -> None:
        self._voices: dict[str, MemberDeclaration] = {}
        self._by_voice: dict[MemberDeclaration, list[tuple[int, str, str]]] = {}
        self._sizes: dict[MemberDeclaration, int] = {}

    def __len__(self) -> int:
        return len(self._voices)

    def add(self, created: int, name: str, uid: str, voice: MemberDeclaration) -> bool:
        """True when the gang may have to be resolved again; False when the pod says nothing new."""
        self._voices[uid] = voice
        self._sizes[voice] = self._sizes.get(voice, 0) + 1
        entries = self._by_voice.setdefault(voice, [])
        heapq.heappush(entries, (created, name, uid))
        return entries[0][2] == uid

    def remove(self, uid: str) -> bool:
        """The same answer; the pod must be a member."""
        voice = self._voices.pop(uid)
        self._sizes[voice] -= 1
        entries = self._by_voice[voice]
        if not self._sizes[voice]:
            del self._by_voice[voice], self._sizes[voice]
            return True
        was_oldest = entries[0][2] == uid
        # Entries of pods that left (or changed their voice) stay until they come up.
        while self._voices.get(entries[0][2]) != voice:
            heapq.heappop(entries)
        return was_oldest

    def oldest_first(self) -> list[Member]:
        return sorted(Member(*entries[0], voice) for voice, entries in self._by_voice.items())

    def oldest(self) -> str:
        """The uid of the oldest member of all."""
        return min(entries[0] for entries in self._by_voice.values())[2]

    def uids(self) -> KeysView[str]:
        return self._voices.keys()

    def schedulers(self, active: bool = True) -> set[str]:
        """Of the members that are active, or of all."""
        return {voice.scheduler for voice in self._by_voice if voice.active or not active}
