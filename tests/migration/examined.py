"""Findings about objects that are given as YAML."""

from __future__ import annotations

import yaml

from phalanx.reports.migration.examine import Examiner
from phalanx.reports.migration.findings import FieldFinding, MigrationVerdict, ObjectFinding
from phalanx.reports.migration.readers import Readers

READERS = Readers()


def examined(*texts: str, partial: tuple[str, ...] = ()) -> list[ObjectFinding]:
    """`partial` are kinds of which not all objects were read."""
    examiner = Examiner(readers=READERS)
    examiner.references.partial.update(partial)
    examiner.add_all(document for text in texts for document in yaml.safe_load_all(text))
    return examiner.found


def objected(found: ObjectFinding) -> dict[str, FieldFinding]:
    return {each.field: each for each in found.fields if each.verdict is not MigrationVerdict.WORKS}


def objected_in(text: str) -> dict[str, FieldFinding]:
    """Return the objections to the text of one object."""
    (found,) = examined(text)
    return objected(found)
