"""The soak finds bugs that are put into the code."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import phalanx

from .mutations.patches import MUTATIONS, Mutation
from .mutations.trial import mutate, trial


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mutation_changes_the_present_code(mutation: Mutation, tmp_path: Path) -> None:
    source, paths = Path(phalanx.__file__).parent, [path for path, _, _ in mutation.replacements]
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / path, tmp_path / path)
    mutate(mutation, tmp_path)
    assert all((tmp_path / path).read_text() != (source / path).read_text() for path in paths)


def test_there_are_ten_mutations() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == 10


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_soak_finds_a_mutation() -> None:
    found = trial(MUTATIONS[0], 2000, 0)
    assert found is not None
    assert found.steps <= 2000


def test_mutation_of_other_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("nothing")
    with pytest.raises(ValueError, match=r"0 times in code\.py"):
        mutate(Mutation("none", "code.py", "something", "else"), tmp_path)
