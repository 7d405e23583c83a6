"""The policy file of a running scheduler: valid changes apply at once, invalid ones are reported and the old
policy stays.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from phalanx.daemon.policy_file import PolicyFile, dialect_options, parse_policy
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.policy.loader import DEFAULT_POLICY

GOOD = 'actions: "allocate"\ntiers:\n- plugins:\n  - name: predicates\n'
BETTER = 'actions: "allocate, backfill"\ntiers:\n- plugins:\n  - name: predicates\n  - name: binpack\n'
BAD = 'actions: "alocate"\ntiers: []\n'


class Followed:
    def __init__(self, path: Path, text: str = GOOD) -> None:
        self.path = path
        self.taken: list[Policy] = []
        self.write(text)
        self.file = PolicyFile(str(path), self.taken.append)

    def write(self, text: str) -> None:
        self.path.write_text(text, "utf-8")

    def actions(self) -> tuple[str, ...]:
        return self.file.policy.actions


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path / "policy.yaml")


def test_without_a_file_the_built_in_policy_holds() -> None:
    file = PolicyFile("")
    file.reload_if_changed()
    assert file.text == DEFAULT_POLICY
    assert file.policy.actions == ("enqueue", "allocate", "preempt", "reclaim", "reserve", "backfill")


def test_a_changed_file_holds_at_once(followed: Followed) -> None:
    followed.write(BETTER)
    followed.file.reload_if_changed()
    assert followed.actions() == ("allocate", "backfill")
    assert [policy.actions for policy in followed.taken] == [("allocate", "backfill")]


def test_an_unchanged_file_changes_nothing(followed: Followed) -> None:
    followed.file.reload_if_changed()
    assert followed.taken == []


def test_invalid_file_is_reported_once_and_the_old_policy_stays(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    followed.write(BAD)
    for _ in range(3):
        followed.file.reload_if_changed()
    assert followed.actions() == ("allocate",)
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "unknown action 'alocate'; did you mean 'allocate'?" in errors[0]
    assert "alocate" in followed.file.problem


def test_second_mistake_is_reported_again(followed: Followed, caplog: pytest.LogCaptureFixture) -> None:
    for text in (BAD, "actions: [", BAD):
        followed.write(text)
        followed.file.reload_if_changed()
    assert len(caplog.records) == 3


@pytest.mark.parametrize("good", [GOOD, BETTER])
def test_a_corrected_file_holds_again(followed: Followed, good: str) -> None:
    followed.write(BAD)
    followed.file.reload_if_changed()
    followed.write(good)
    followed.file.reload_if_changed()
    assert followed.file.problem == ""
    assert ("backfill" in followed.actions()) == (good == BETTER)


def test_file_that_is_missing_for_a_moment_changes_nothing(followed: Followed) -> None:
    followed.path.unlink()
    followed.file.reload_if_changed()
    assert "cannot be read" in followed.file.problem
    followed.write(GOOD)
    followed.file.reload_if_changed()
    assert followed.file.problem == ""
    assert followed.taken == []


def test_a_bad_file_at_the_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="unknown action 'alocate'"):
        Followed(tmp_path / "policy.yaml", BAD)
    with pytest.raises(PolicyError, match="cannot be read"):
        PolicyFile(str(tmp_path / "nowhere.yaml"))


def test_unknown_dialect_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"phalanx\.dialects: .*legacyInvalidMin"):
        Followed(tmp_path / "policy.yaml", f"{GOOD}phalanx:\n  dialects:\n    legacyInvalidMin: sometimes\n")


def test_dialect_options_wait_for_the_next_start(followed: Followed, caplog: pytest.LogCaptureFixture) -> None:
    followed.write(f"{GOOD}phalanx:\n  dialects:\n    failOnAnyMember: true\n")
    followed.file.reload_if_changed()
    assert "takes effect at the next start" in caplog.text


def test_former_key_of_gang_group_namespaces_is_accepted_with_a_notice() -> None:
    policy = parse_policy("phalanx: {dialects: {bundleNamespaces: [[a, b]]}}", "")
    assert dialect_options(policy).gang_group_namespaces == (frozenset("ab"),)
    assert any("bundleNamespaces was renamed to gangGroupNamespaces" in sentence for sentence in policy.inactive)
