"""Dialects of installed packages, beside the built-in ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import phalanx.cluster
import phalanx.scheduling
from phalanx.cli.installation.manifests import access, definitions
from phalanx.daemon.policy_file import dialect_options
from phalanx.dialects.dialect import AccessRule, Dialect, GroupKind
from phalanx.dialects.gangs.group_spec import GroupReader, GroupSpec
from phalanx.dialects.gangs.naming import GangNaming, Precedence
from phalanx.dialects.gangs.status_input import GroupStatusInput
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.reader import Document
from phalanx.dialects.registry import BUILT_IN, installed_dialects
from phalanx.dialects.status import desired_status
from phalanx.model.gang import Gang, GangCounts, GangKey, GangRules, MatchPolicy
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.policy.loader import load_policy
from tests.dialects.objects import group, pod

TEAM = ServedKind("example.com", "v1", "teams", "Team")
KEY = GangKey("default", "g")


def read_team(resource: ServedKind, document: Document) -> tuple[GroupSpec, ...]:
    reader = GroupReader(resource, document)
    return (GroupSpec(reader.ref, reader.ref.name, min_member=reader.min_member("size")),)


def team_status(standing: GroupStatusInput) -> dict[str, Any]:
    return {"members": standing.scheduled}


NAMING = GangNaming(
    GangRules("example.com"),
    MatchPolicy.WAITING_AND_RUNNING,
    Precedence.LABEL,
    labels=("example.com/team",),
    objects=("example.com",),
)
TEAMS = Dialect(
    "teams",
    (NAMING,),
    (GroupKind(WantedKind("example.com", "teams", "Team", ("v1",)), read_team, NAMING, team_status),),
    access=(AccessRule("example.com", ("teams",)),),
)


def raising(*arguments: object) -> Any:
    raise ValueError("a bug")


class Entry:
    def __init__(self, name: str, offered: object) -> None:
        self.name, self.value, self._offered = name, f"package:{name}", offered

    def load(self) -> object:
        if isinstance(self._offered, Exception):
            raise self._offered
        return self._offered


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def offer(**offered: object) -> None:
        entries = [Entry(name, each) for name, each in offered.items()]
        monkeypatch.setattr(
            "phalanx.dialects.registry.entry_points", lambda group: entries * (group == "phalanx.dialects")
        )
        installed_dialects.cache_clear()

    yield offer
    installed_dialects.cache_clear()


def test_dialect_of_a_package_works_from_the_pods_label_to_the_objects_status(offer: Any) -> None:
    offer(teams=TEAMS)
    door = Intake(["phalanx"], dialects=installed_dialects())
    door.pod(pod(labels={"example.com/team": "g"}))
    door.group(TEAM, group("g", size=3))
    gang = door._gangs.gang(KEY)
    assert gang is not None
    assert gang.source is not None
    assert (gang.min_member, gang.rules, gang.source.kind) == (3, NAMING.rules, "Team")
    change = desired_status(door.dialects.group_of(gang.source), gang.source, {}, gang, GangCounts(bound=2))
    assert change is not None
    assert change.patch["status"] == {"members": 2}


def test_name_refers_to_the_objects_of_its_own_dialect_first(offer: Any) -> None:
    offer(teams=TEAMS)
    door = Intake(["phalanx"], dialects=installed_dialects())
    door.group(ServedKind("scheduling.x-k8s.io", "v1alpha1", "podgroups"), group("g", minMember=2))
    door.group(TEAM, group("g", size=3))
    gang = door._gangs.gang(KEY)
    assert gang is not None
    assert gang.min_member == 2  # no pod names it yet: built-in dialects come first
    door.pod(pod(labels={"example.com/team": "g"}))
    gang = door._gangs.gang(KEY)
    assert gang is not None
    assert gang.min_member == 3


def test_rights_of_an_installed_dialect_are_installed(offer: Any) -> None:
    offer(teams=TEAMS)
    rules = access("phalanx-scheduler", "phalanx-system")[2]["rules"]
    assert {"apiGroups": ["example.com"], "resources": ["teams"], "verbs": ["get", "list", "watch"]} in rules
    assert definitions()


def test_policies_accept_the_name_of_an_installed_dialect_and_no_other(offer: Any) -> None:
    def options(name: str) -> Any:
        text = (
            f'actions: "allocate"\ntiers: []\nphalanx: {{dialects: {{matchPolicies: {{{name}: only-waiting}}}}}}\n'
        )
        return dialect_options(load_policy(text, "policy.yaml"))

    with pytest.raises(PolicyError, match="unknown name 'example"):
        options("example.com")
    offer(teams=TEAMS)
    assert options("example.com").match_policies == {"example.com": MatchPolicy.ONLY_WAITING}


@pytest.mark.parametrize(
    ("offered", "why"),
    [
        (ImportError("no module named teams"), "it cannot be loaded: no module named teams"),
        ("teams", "it is not a phalanx.dialects.dialect.Dialect"),
        (Dialect("mine", enrichers=raising), "it cannot be used: ValueError: a bug"),
        (Dialect("volcano"), "the name 'volcano' belongs to the dialect 'volcano' already"),
        (
            Dialect(
                "mine", (GangNaming(GangRules("x"), NAMING.match_policy, Precedence.LABEL, ("pod-group/name",)),)
            ),
            "the key pod-group/name belongs to the dialect 'scheduler-plugins' already",
        ),
        (
            Dialect("mine", groups=BUILT_IN[0].groups),
            "the kind podgroups.scheduling.x-k8s.io belongs to the dialect 'scheduler-plugins' already",
        ),
    ],
)
def test_unusable_dialect_is_reported_and_skipped(
    offer: Any, caplog: pytest.LogCaptureFixture, offered: object, why: str
) -> None:
    offer(bad=offered, teams=TEAMS)
    assert installed_dialects() == (*BUILT_IN, TEAMS)
    assert [record.message for record in caplog.records] == [f"dialect bad (package:bad) is ignored: {why}"]


def test_declaration_reader_that_raises_loses_only_its_own_names(caplog: pytest.LogCaptureFixture) -> None:
    broken = GangNaming(GangRules("broken"), NAMING.match_policy, Precedence.FIELD, read=raising)
    door = Intake(["phalanx"], dialects=(*BUILT_IN, Dialect("broken", (broken,))))
    for name in ("a", "b"):
        door.pod(pod(name, labels={"pod-group/name": "g", "pod-group/min-available": "2"}))
    gang = door._gangs.gang(KEY)
    assert gang is not None
    assert gang.min_member == 2
    assert [record.message for record in caplog.records] == [
        "reading the gang names of 'broken' has failed; they are ignored from now on"
    ]


def test_object_reader_that_raises_holds_the_gang_of_that_object(offer: Any) -> None:
    (kind,) = TEAMS.groups
    broken = Dialect("teams", (NAMING,), (GroupKind(kind.kind, raising, NAMING),))
    door = Intake(["phalanx"], dialects=(*BUILT_IN, broken))
    door.group(TEAM, group("g", size=3))
    gang = door._gangs.gang(KEY)
    assert gang is not None
    assert isinstance(gang, Gang)
    assert gang.problem is not None
    assert gang.problem.message == "Team default/g (example.com) cannot be read: ValueError: a bug; apply it again"


def test_core_reads_properties_of_a_declaration_and_never_its_dialect() -> None:
    names = {naming.rules.name for dialect in BUILT_IN for naming in dialect.namings}
    for path in (
        *Path(phalanx.cluster.__path__[0]).rglob("*.py"),
        *Path(phalanx.scheduling.__path__[0]).rglob("*.py"),
    ):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            assert not (isinstance(node, ast.Constant) and node.value in names), f"{path}:{node.lineno}"
            assert not (isinstance(node, ast.Attribute) and ast.unparse(node).endswith("rules.name")), path
