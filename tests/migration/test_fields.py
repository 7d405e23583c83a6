"""The finding about a field equals the behaviour of the scheduler's own readers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.reports.migration.examine import Examiner
from phalanx.reports.migration.findings import FieldFinding, MigrationVerdict
from phalanx.reports.migration.foreign import FOREIGN_KINDS, system_of
from phalanx.reports.migration.readers import Readers, leaves, spelled
from tests.extent import examples

MANIFESTS = [each for each in yaml.safe_load_all((Path(__file__).parent / "manifests.yaml").read_text()) if each]
READERS = Readers()
# Another value that is as good as the one that stands there, where a number more would not do.
OTHERS: dict[str, Any] = {
    "spec.reclaimable": False,
    "spec.allocateOnce": False,
    "spec.capability.memory": "1Gi",
    "spec.dequeueStrategy": "traverse",
    "spec.networkTopology.mode": "soft",
    "spec.ttl": "2h",
    "spec.template": {"spec": {"schedulerName": "koord-scheduler", "containers": [{"name": "other"}]}},
    "spec.parent": "other",
    "spec.minTaskMember.worker": 3,
    "metadata.annotations[volcano.sh/hierarchy]": "root/other",
    "metadata.annotations[volcano.sh/hierarchy-weights]": "1/3",
    "metadata.labels[quota.scheduling.koordinator.sh/is-parent]": "true",
    "metadata.labels[quota.scheduling.koordinator.sh/allow-lent-resource]": "false",
    "metadata.annotations[quota.scheduling.koordinator.sh/shared-weight]": '{"cpu": 5}',
    "metadata.annotations[quota.scheduling.koordinator.sh/namespaces]": '["team-x"]',
    "metadata.annotations[gang.scheduling.koordinator.sh/groups]": '["team-c/koord-gang", "team-c/second"]',
    "spec.tasks[0].template": {"spec": {"containers": [{"name": "other", "image": "x"}]}},
    "spec.tasks[1].template": {"spec": {"containers": [{"name": "other", "image": "x"}]}},
    "spec.policies[0].event": "PodFailed",
    "spec.policies[0].action": "AbortJob",
    "spec.plugins.ssh": ["--no-root"],
    "spec.plugins.svc": ["--disable-network-policy=true"],
    "spec.plugins.env": ["--x"],
}


def findings(document: Any) -> tuple[FieldFinding, ...]:
    examiner = Examiner()
    examiner.add(document)
    (found,) = examiner.found
    return found.fields


def read_ones() -> Iterator[tuple[dict[str, Any], str, tuple[str | int, ...], MigrationVerdict]]:
    """Return every field of every object that a reader of ours knows, with its finding."""
    for document in MANIFESTS:
        group = document["apiVersion"].rpartition("/")[0]
        if system_of(group) and READERS.reader(document) is not None:
            told = {each.field: each.verdict for each in findings(document)}
            metadata = {key: document["metadata"].get(key, {}) for key in ("labels", "annotations")}
            for path in leaves({"spec": document["spec"], "metadata": metadata}):
                short = path[: path.index("template") + 1] if "template" in path else path
                field = spelled(short)
                if field in told and told[field] is not MigrationVerdict.CHANGE:
                    yield document, field, short, told[field]


FIELDS = list({(each[0]["kind"], each[0]["metadata"]["name"], each[1]): each for each in read_ones()}.values())
HONOURED = [each[:3] for each in FIELDS if each[3] is MigrationVerdict.WORKS]
IGNORED = [each[:3] for each in FIELDS if each[3] is MigrationVerdict.NOT_HONOURED and "mode" not in each[1]]


def with_value(document: dict[str, Any], path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    place: Any = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


def another(field: str, value: object) -> object:
    if field in OTHERS:
        return OTHERS[field]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    text = str(value)
    return str(int(text) + 1) if text.isdigit() else f"{text}x"


@pytest.mark.parametrize(("document", "field", "path"), HONOURED, ids=[f"{d['kind']} {f}" for d, f, _ in HONOURED])
def test_honoured_field_changes_the_reading_with_another_valid_value(
    document: dict[str, Any], field: str, path: tuple[str | int, ...]
) -> None:
    read = READERS.reader(document)
    assert read is not None
    value: Any = document
    for step in path:
        value = value[step]
    before, told = read(document)
    after, told_after = read(with_value(document, path, another(field, value)))
    assert after != before
    assert set(told_after) <= set(told), "the other value is good as well"


@pytest.mark.thorough
@pytest.mark.parametrize(("document", "field", "path"), IGNORED, ids=[f"{d['kind']} {f}" for d, f, _ in IGNORED])
@settings(max_examples=examples(30))
@given(
    value=st.one_of(st.booleans(), st.integers(), st.text(max_size=9), st.lists(st.text(max_size=3), max_size=2))
)
def test_field_not_honoured_never_changes_the_reading(
    document: dict[str, Any], field: str, path: tuple[str | int, ...], value: object
) -> None:
    read = READERS.reader(document)
    assert read is not None
    assert read(with_value(document, path, value)) == read(document)


def test_both_kinds_of_fields_are_there() -> None:
    assert len(HONOURED) > 35
    assert len(IGNORED) >= 2


def test_no_kind_that_is_read_has_words_of_its_own() -> None:
    assert not set(FOREIGN_KINDS) & set(READERS.kinds)


def test_kai_queue_with_equal_weights_of_resources_loses_nothing() -> None:
    def queue(**weights: int) -> dict[str, Any]:
        resources = {kind: {"quota": 1, "limit": -1, "overQuotaWeight": weight} for kind, weight in weights.items()}
        head = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}}
        return {**head, "spec": {"resources": resources}}

    assert {each.verdict for each in findings(queue(cpu=2, memory=2, gpu=2))} == {MigrationVerdict.CHANGE}
    lost = {
        each.field
        for each in findings(queue(cpu=1, memory=2, gpu=2))
        if each.verdict is MigrationVerdict.NOT_HONOURED
    }
    assert lost == {"spec.resources.cpu.overQuotaWeight", "spec.resources.memory.overQuotaWeight"}


def test_entries_of_a_list_have_the_finding_of_their_list() -> None:
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "d"},
        "spec": {"subGroups": [{"name": "a", "minMember": 2}]},
    }
    assert all("subGroupPolicy" in each.message for each in findings(group))


def test_object_with_koordinator_keys_belongs_to_koordinator() -> None:
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "annotations": {"gang.scheduling.koordinator.sh/mode": "Strict"}},
        "spec": {"minMember": 2},
    }
    examiner = Examiner()
    examiner.add(group)
    assert [each.system for each in examiner.found] == ["Koordinator"]


def test_a_profile_that_names_a_scheduler_says_which_name_to_write() -> None:
    profile = {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": "p"},
        "spec": {"qosClass": "BE", "schedulerName": "koord-scheduler"},
    }
    told = {each.field: each for each in findings(profile)}
    assert told["spec.qosClass"].verdict is MigrationVerdict.WORKS
    assert told["spec.schedulerName"].verdict is MigrationVerdict.CHANGE
    assert "--scheduler-name koord-scheduler" in told["spec.schedulerName"].message
