"""Known objects of a reflector equal a mapping by key."""

from __future__ import annotations

import random

from phalanx.kube.known_objects import KnownObject, KnownObjects


def test_known_objects_equal_a_dictionary_after_random_changes() -> None:
    choice, known, expected = random.Random(1), KnownObjects(), dict[tuple[str, str], tuple[str, int]]()
    for number in range(2_000):
        key = f"namespace-{choice.randrange(3)}", f"name-{choice.randrange(40)}"
        if key in expected and choice.random() < 0.5:
            assert known.pop(key).uid == expected.pop(key)[0]
        else:
            known.namespaces[key[0]][key[1]] = KnownObject(f"uid-{number}", number)
            expected[key] = f"uid-{number}", number
        entry = known.get(key)
        assert (None if entry is None else (entry.uid, entry.version)) == expected.get(key)
        assert len(known) == len(expected)
    assert sorted(known) == sorted(expected)


def test_namespace_without_objects_is_forgotten() -> None:
    known = KnownObjects()
    known.namespaces["team"]["pod"] = KnownObject("uid", 1)
    known.pop(("team", "pod"))
    assert list(known) == []
    assert not known.namespaces


def test_forgotten_versions_are_older_than_any_other() -> None:
    known = KnownObjects()
    known.namespaces["team"]["pod"] = KnownObject("uid", 7)
    known.forget_versions()
    entry = known.get(("team", "pod"))
    assert entry is not None
    assert (entry.uid, entry.version) == ("uid", -1)
