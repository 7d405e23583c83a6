"""Queues and groups that replace KAI's: their fields, and their order of application."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from phalanx.admission import queues
from phalanx.admission.context import AdmissionContext, QueueCatalog
from phalanx.cli.main import cli
from phalanx.reports.migration.examine import Examiner
from phalanx.reports.migration.findings import FieldFinding, MigrationVerdict, ObjectFinding
from phalanx.reports.migration.readers import Readers

READERS = Readers()


def queue(name: str, spec: str = "{}") -> str:
    return f"apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def group(name: str, spec: str) -> str:
    head = "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup"
    return f"{head}\nmetadata: {{name: {name}, namespace: t}}\nspec: {spec}\n"


def examined(*texts: str) -> dict[str, ObjectFinding]:
    examiner = Examiner(readers=READERS)
    examiner.add_all(yaml.safe_load(text) for text in texts)
    return {each.name: each for each in examiner.found}


def said(found: ObjectFinding) -> dict[str, FieldFinding]:
    return {each.field: each for each in found.fields}


def made(found: ObjectFinding) -> dict[str, Any]:
    (manifest,) = found.manifests
    return manifest


def write(tmp_path: Path, *texts: str) -> list[dict[str, Any]]:
    """Return the objects that `kubectl apply -f` would apply, in its order."""
    (tmp_path / "in.yaml").write_text("---\n".join(texts))
    arguments = ["migrate", "--from", str(tmp_path / "in.yaml"), "--write", str(tmp_path / "out")]
    CliRunner().invoke(cli, arguments)
    return [yaml.safe_load(path.read_text()) for path in sorted((tmp_path / "out" / "objects").iterdir())]


def test_files_in_the_order_of_their_names_can_be_applied_one_after_the_other(tmp_path: Path) -> None:
    texts = [
        group("a-group", "{minMember: 2, queue: aa-team}"),
        queue("aa-team", "{parentQueue: mm-team}"),
        queue("mm-team", "{parentQueue: zz-dept}"),
        queue("zz-dept"),
        queue("root"),
    ]
    catalog = QueueCatalog()
    for document in write(tmp_path, *texts):
        if document["kind"] == "Queue":
            assert queues.validate(document, None, AdmissionContext(queues=catalog)) == []
            catalog.put(document)
        else:
            assert catalog.get(document["spec"]["queue"]) is not None
    assert len(catalog.all()) == 4


def test_cyclic_queues_are_written_and_reported(tmp_path: Path) -> None:
    texts = [queue("a", "{parentQueue: b}"), queue("b", "{parentQueue: a}")]
    assert {each["metadata"]["name"] for each in write(tmp_path, *texts)} == {"a", "b"}
    found = examined(*texts)
    assert any("would refuse" in each.message for name in ("a", "b") for each in found[name].fields)


@pytest.mark.parametrize("place", ["nowhere/out", "file"])
def test_where_nothing_can_be_written_one_line_says_so(tmp_path: Path, place: str) -> None:
    (tmp_path / "nowhere").touch()
    (tmp_path / "in.yaml").write_text(queue("q"))
    target = tmp_path / "nowhere" / "out" if place == "nowhere/out" else tmp_path / "taken"
    if place == "file":
        target.mkdir()
        (target / "objects").touch()
    arguments = ["migrate", "--from", str(tmp_path / "in.yaml"), "--write", str(target)]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: cannot write ")
    assert result.stderr.count("\n") == 1


def test_queue_called_root_is_renamed_in_every_reference() -> None:
    found = examined(
        queue("root", "{resources: {gpu: {quota: 2}}}"),
        queue("child", "{parentQueue: root}"),
        group("g", "{queue: root}"),
        """
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, namespace: t}
spec:
  template:
    metadata: {labels: {kai.scheduler/queue: root}}
    spec: {schedulerName: kai-scheduler, containers: [{name: c}]}
""",
    )
    assert made(found["root"])["metadata"]["name"] == "kai-root"
    assert "kai-root" in said(found["root"])["metadata.name"].message
    assert made(found["child"])["spec"]["parent"] == made(found["g"])["spec"]["queue"] == "kai-root"
    assert "kai-root" in said(found["child"])["spec.parentQueue"].message
    patch = found["d"].patch
    assert patch is not None
    annotations = patch["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"scheduling.volcano.sh/queue-name": "kai-root"}


def test_missing_parent_is_reported_in_the_words_of_the_webhook() -> None:
    fields = examined(queue("child", "{parentQueue: dept}"))["child"].fields
    assert any("failed to get parent queue dept" in each.message for each in fields)
    assert examined(queue("child", "{parentQueue: default}"))["child"].verdict is MigrationVerdict.CHANGE


def test_queue_that_the_webhook_would_refuse_is_reported() -> None:
    found = examined(queue("q", "{resources: {gpu: {quota: 4, limit: 2}}}"))["q"]
    assert found.verdict is MigrationVerdict.NOT_HONOURED
    assert "must be <= capability" in said(found)[""].message


def test_unlimited_quota_must_be_filled_in_by_an_administrator() -> None:
    found = examined(queue("q", "{resources: {cpu: {quota: -1, limit: -1}}}"))["q"]
    assert "deserved" not in made(found)["spec"]
    assert "write spec.deserved.cpu as large as" in said(found)["spec.resources.cpu.quota"].message
    assert "left out" in said(found)["spec.resources.cpu.limit"].message


def test_queues_below_one_of_which_that_has_to_be_written_work_after_it_is() -> None:
    parent = queue("dept", "{resources: {gpu: {quota: -1}}}")
    found = examined(parent, queue("team", "{parentQueue: dept, resources: {gpu: {quota: 2}}}"))["team"]
    assert found.verdict is MigrationVerdict.CHANGE
    assert "until dept has the deserved amounts of its children" in said(found)[""].message


def test_queues_that_deserve_more_than_their_parent_are_refused() -> None:
    parent = queue("dept", "{resources: {gpu: {quota: 1}}}")
    found = examined(parent, queue("team", "{parentQueue: dept, resources: {gpu: {quota: 2}}}"))["team"]
    assert found.verdict is MigrationVerdict.NOT_HONOURED
    assert "exceeds parent's deserved" in said(found)[""].message


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ("{priority: -5}", "spec.priority", "-5 becomes 0"),
        ("{priority: high}", "spec.priority", "is not an integer"),
        ('{resources: {cpu: {quota: "x"}}}', "spec.resources.cpu.quota", "'x' is not a number"),
        ('{resources: {gpu: {limit: "4"}}}', "spec.resources.gpu.limit", "'4' is not a number"),
        ("{resources: {memory: {quota: -3}}}", "spec.resources.memory.quota", "is negative"),
    ],
)
def test_fields_without_an_equivalent_are_reported(spec: str, field: str, words: str) -> None:
    told = said(examined(queue("q", spec))["q"])[field]
    assert told.verdict is MigrationVerdict.NOT_HONOURED
    assert words in told.message


@pytest.mark.parametrize(("word", "label"), [("preemptible", None), ("non-preemptible", "false")])
def test_a_label_that_is_spoken_of_is_written(word: str, label: str | None) -> None:
    found = examined(group("g", f"{{minMember: 1, preemptibility: {word}}}"))["g"]
    assert made(found)["metadata"].get("labels", {}).get("volcano.sh/preemptable") == label
    assert ("nothing to write" in said(found)["spec.preemptibility"].message) is (label is None)
