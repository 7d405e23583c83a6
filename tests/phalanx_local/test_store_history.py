"""The store's history: past states are readable, and a follower of the events reaches the state of the list."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx_local.endpoints.listing import Selection
from phalanx_local.endpoints.watching import Watch, WatchQuery
from phalanx_local.errors import StatusError
from phalanx_local.registry.catalog import build_registry
from phalanx_local.registry.resources import Version
from phalanx_local.registry.selectors import FieldSelector, requested_labels
from phalanx_local.storage.records import ADDED, DELETED, Key, Record
from phalanx_local.storage.store import Collection, Store
from tests.extent import examples

Step = tuple[str, str]

steps = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["red", "blue", "gone"])), max_size=30)


def version() -> Version:
    found = build_registry("none", protect_groups=False).version("", "v1", "configmaps")
    assert found is not None
    return found


def write(store: Store, collection: Collection, step: Step) -> None:
    name, color = step
    old = collection.records.get(("default", name))
    if color == "gone":
        if old is not None:
            store.remove(collection, old)
        return
    uid = old.uid if old is not None else f"{name}-{store.revision}"
    meta = {"name": name, "namespace": "default", "uid": uid, "labels": {"color": color}}
    store.put(collection, {"metadata": meta}, old)


def bodies(records: dict[Key, Record]) -> dict[Key, bytes]:
    return {key: record.body for key, record in records.items()}


@pytest.mark.thorough
@settings(max_examples=examples(100))
@given(steps)
def test_every_revision_in_the_history_can_be_read_again(plan: list[Step]) -> None:
    store = Store(revision=100, history=1000)
    collection = store.open("/configmaps", lambda obj: {})
    seen = {store.revision: bodies(collection.records)}
    for step in plan:
        write(store, collection, step)
        seen[store.revision] = bodies(collection.records)
    for revision, state in seen.items():
        assert bodies(collection.at(revision, store.revision)) == state


@pytest.mark.thorough
@settings(max_examples=examples(100))
@given(steps, st.integers(1, 5))
def test_a_short_history_answers_right_or_not_at_all(plan: list[Step], history: int) -> None:
    store = Store(revision=100, history=history)
    collection = store.open("/configmaps", lambda obj: {})
    seen = {store.revision: bodies(collection.records)}
    for step in plan:
        write(store, collection, step)
        seen[store.revision] = bodies(collection.records)
    for revision, state in seen.items():
        if revision < collection.compacted:
            with pytest.raises(StatusError) as caught:
                collection.since(revision)
            assert caught.value.code == 410
        else:
            assert bodies(collection.at(revision, store.revision)) == state
    assert len(collection.history) <= history


class Follower:
    """A client that stores the events of a watch, and checks that each is consistent with its state."""

    def __init__(self, known: dict[Key, bytes]) -> None:
        self.known = known

    def line(self, kind: str, record: Record) -> bytes:
        assert (record.key in self.known) == (kind != ADDED)
        if kind == DELETED:
            del self.known[record.key]
        else:
            self.known[record.key] = record.body
        return b""


@pytest.mark.thorough
@settings(max_examples=examples(200))
@given(steps, st.integers(0, 30), st.integers(0, 30))
def test_following_a_selection_ends_where_its_list_is(plan: list[Step], start: int, opened: int) -> None:
    """From any revision, with part of the changes missed and part of them live."""
    store = Store(revision=100, history=1000)
    collection = store.open("/configmaps", lambda obj: {})
    selection = Selection("default", requested_labels("color=red"), FieldSelector(()))

    def listed() -> dict[Key, bytes]:
        return {key: record.body for key, record in collection.records.items() if selection.matches(record)}

    for step in plan[:start]:
        write(store, collection, step)
    follower = Follower(listed())
    query = WatchQuery(selection, store.revision, False, False, False, 60.0)
    for step in plan[start : start + opened]:
        write(store, collection, step)
    watch = Watch(store, collection, version(), query, bookmark_interval=60, line=follower.line)
    watch.open()
    for step in plan[start + opened :]:
        write(store, collection, step)
    assert follower.known == listed()


async def test_all_watchers_share_the_bytes_of_an_event() -> None:
    store = Store(revision=100, history=10)
    collection = store.open("/configmaps", lambda obj: {})
    everything = Selection("", requested_labels(""), FieldSelector(()))
    query = WatchQuery(everything, None, False, True, False, 60.0)
    shown = version()
    watches = [Watch(store, collection, shown, query, bookmark_interval=60) for _ in range(3)]
    for watch in watches:
        watch.open()
    write(store, collection, ("a", "red"))
    line = collection.history[-1].line("ADDED", shown)
    for watch in watches:
        stream = watch.stream()
        # joining a single line hands on the very object, so equal identity means encoded once
        assert await anext(stream) is line
        watch.close()
        await stream.aclose()


def test_indexes_follow_owners_and_uids() -> None:
    store = Store(revision=100, history=10)
    collection = store.open("/configmaps", lambda obj: {})
    meta: dict[str, Any] = {
        "name": "a",
        "namespace": "default",
        "uid": "u",
        "ownerReferences": [{"uid": "o"}],
    }
    record = store.put(collection, {"metadata": meta}, None)
    assert store.by_uid["u"] == ("/configmaps", ("default", "a"))
    assert store.by_owner == {"o": {("/configmaps", ("default", "a"))}}
    kept = {key: value for key, value in meta.items() if key != "ownerReferences"}
    record = store.put(collection, {"metadata": kept}, record)
    assert store.by_owner == {}
    store.remove(collection, record)
    assert store.by_uid == {}
