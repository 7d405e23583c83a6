"""Shown names of gangs: the one name of a gang that every view prints, derived from its job, PodGroup and part.

The shown name is the one that the user wrote: the name of the job, or of the PodGroup without a job. If a job has
several gangs, each is NAME/PART. If two gangs of a namespace would have equal names, both are KIND/NAME.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from sys import intern

import msgspec

from phalanx.model.gang import Gang, GangKey, owner_of_name, part_of_name, shown_name
from phalanx.model.text.decoding import quoted

PODGROUP, GANG = "podgroup", "gang"
#: Kinds whose word in shown names is not the kind in lower case.
_WORDS = {"leaderworkerset": "lws"}
#: Synonyms that users can type for gangs without a job.
_WITHOUT_JOB = frozenset({PODGROUP, "podgroups", "pg", GANG, "gangs"})
#: Kinds in keys of gangs that only labels of pods declare: there is no object of such a kind.
_APPLICATIONS = frozenset({"spark", "flink", "dask", "yunikorn"})
_VOLCANO_JOB = ("batch.volcano.sh", "Job")
VCJOB = "vcjob"
_SYNONYMS = {"vj": VCJOB, "vcjobs": VCJOB, "jobs": "job"}


class GangNameFacts(msgspec.Struct, frozen=True, gc=False):
    """Job, PodGroup and part of a gang, which determine its shown name.

    `kind` is a word as returned by `kind_word` and `name` the name of the job, or of the PodGroup of a gang without
    a job. `part` is always shown, `suffix` only if the job has several gangs. `uid` is that of the job, "" if
    unknown.
    """

    kind: str
    name: str
    part: str = ""
    suffix: str = ""
    uid: str = ""

    @property
    def short(self) -> str:
        """Shown name of the gang unless another gang has the same one."""
        return f"{self.name}/{self.part}" if self.part else self.name


def kind_word(group: str, kind: str) -> str:
    """Return the word that stands for a kind in shown names: vcjob, job, pytorchjob, lws."""
    if (group, kind) == _VOLCANO_JOB:
        return VCJOB
    word = intern(kind.lower())  # thousands of gangs share it
    return _WORDS.get(word, word)


def normal_word(typed: str) -> str:
    """Return the `kind_word` of a kind as users type it (plurals, short names); "podgroup" for gangs without a
    job."""
    word = typed.lower()
    if word in _WITHOUT_JOB:
        return PODGROUP
    if word.endswith(".batch.volcano.sh"):
        return VCJOB
    word = word.partition(".")[0]
    return _SYNONYMS.get(word, _WORDS.get(word, word))


def suffix_of_group(group: str, owner: str, uid: str) -> str:
    """Return the part of a generated PodGroup's name beside the name and the uid of its owner.

    >>> suffix_of_group("train-1b2c", "train", "1b2c"), suffix_of_group("serve-0-7f", "serve", "9")
    ('', '0-7f')
    """
    rest = group.removesuffix(uid).removesuffix("-") if uid else group
    if rest == owner or not rest:
        return ""
    return rest.removeprefix(f"{owner}-")


def facts_of(key: GangKey, gang: Gang | None) -> GangNameFacts:
    """Return the job, PodGroup and part that determine a gang's shown name; `gang` is None if only its key is
    known."""
    owner = gang.owner if gang is not None else None
    kind, name = owner_of_name(key.name)
    part = part_of_name(key.name)
    if owner is not None:
        if kind:
            suffix = suffix_of_group(name, owner.name, "")
            return GangNameFacts(owner.kind, owner.name, part=part, suffix=suffix, uid=owner.uid)
        return GangNameFacts(
            owner.kind, owner.name, suffix=suffix_of_group(key.name, owner.name, owner.uid), uid=owner.uid
        )
    if kind:
        return GangNameFacts(PODGROUP if kind in _APPLICATIONS else kind, name, part=part)
    return GangNameFacts(PODGROUP, key.name)


def shown_names(facts: Mapping[GangKey, GangNameFacts]) -> dict[GangKey, str]:
    """Return the shown name of each gang. Gangs of other namespaces or with other names have no influence."""
    found = _with_suffixes(facts)
    by_text: dict[tuple[str, str], list[GangKey]] = {}
    for key, text in found.items():
        by_text.setdefault((key.namespace, text), []).append(key)
    for keys in by_text.values():
        if len({facts[key].kind for key in keys}) > 1:
            for key in keys:
                found[key] = f"{facts[key].kind}/{found[key]}"
    return found


def _with_suffixes(facts: Mapping[GangKey, GangNameFacts]) -> dict[GangKey, str]:
    """Return names that distinguish the gangs of one job, but not yet the gangs of two jobs with one name."""
    jobs: dict[tuple[str, str, str, str], int] = {}
    for key, each in facts.items():
        job = (key.namespace, each.kind, each.name, each.uid)
        jobs[job] = jobs.get(job, 0) + 1
    found = {}
    for key, each in facts.items():
        several = jobs[key.namespace, each.kind, each.name, each.uid] > 1
        found[key] = f"{each.short}/{each.suffix}" if several and each.suffix else each.short
    return found


class AmbiguousGangError(ValueError):
    """Error for a typed name that gangs of several jobs have. `candidates` are names that distinguish them."""

    def __init__(self, namespace: str, name: str, candidates: Iterable[str]) -> None:
        self.candidates = tuple(sorted(candidates))
        super().__init__(
            f"{len(self.candidates)} gangs have the name {quoted(name)} in namespace {quoted(namespace)}: "
            f"write {', '.join(self.candidates)}"
        )


def find_gangs(facts: Mapping[GangKey, GangNameFacts], namespace: str, typed: str, kind: str = "") -> list[GangKey]:
    """Return the gangs that a user means by `typed`, sorted; several only if one job has several gangs.

    `typed` is NAME, KIND/NAME, NAME/PART, KIND/NAME/PART, or the full name of a PodGroup. `kind` is the kind if it
    was typed separately from the name, "" for any. Raises AmbiguousGangError.
    """
    there = {key: each for key, each in facts.items() if key.namespace == namespace}
    word, slash, rest = typed.partition("/")
    if not kind and slash and rest and (found := _named(there, namespace, rest, normal_word(word))):
        return found
    return _named(there, namespace, typed, normal_word(kind) if kind else "")


def _named(there: Mapping[GangKey, GangNameFacts], namespace: str, name: str, word: str) -> list[GangKey]:
    shown = _with_suffixes(there)
    found = {key for key, each in there.items() if name in (shown[key], each.short)}
    found = found or {key for key, each in there.items() if each.name == name}
    exact = {key for key in there if key.name == name}
    if word == PODGROUP:
        # The gang of a job is found by the kind podgroup too: earlier lists showed it so.
        found = exact or {key for key in found if there[key].kind == PODGROUP} or found
    elif word:
        # Users can type the plural of a kind: pytorchjobs/train.
        words = (word, word.removesuffix("s"))
        found = {key for key in found if there[key].kind in words} or {
            key for key in there if _is_of_owner(key, name) and owner_of_name(key.name)[0] in words
        }
    else:
        found = found | exact or {key for key in there if _is_of_owner(key, name)}
    if len(kinds := {there[key].kind for key in found}) > 1:
        raise AmbiguousGangError(namespace, name, {f"{each}/{name}" for each in kinds})
    return sorted(found)


def _is_of_owner(key: GangKey, name: str) -> bool:
    """Return whether `name` is the name of the owner that a gang's key contains, such as a RayJob's RayCluster."""
    kind, owner = owner_of_name(key.name)
    return bool(kind) and name in (owner, shown_name(key.name))
