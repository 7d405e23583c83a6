"""docs/messages.md lists every reason code of the scheduler and its controllers, with a current example."""

from __future__ import annotations

import re

import pytest

from phalanx.views.verdict_texts import EVICTION_TEXTS, TEXTS, eviction_text
from tests.messages.examples import text_examples
from tests.messages.source_codes import SOURCE, codes_in_source
from tests.monitoring.test_alerts import ROOT

DOCUMENT = ROOT / "docs/messages.md"
NO_EXAMPLE = "(names the object, the field and the fix)"
#: Words that make a message unclear: persons, "may", and counts without a number.
UNCLEAR = re.compile(r"\b(?:nobody|somebody|who|whom|may|told|leave)\b|\(s\) (?:wait|left)")
_ROW = re.compile(r"\| `(\w+)` \| (.*?) \| ([^|]+) \| ([^|]+) \|")


def examples() -> dict[str, str]:
    """Return code -> example: a rendered message, else its template in the source."""
    templates = {code: text for code, text in codes_in_source().items() if text.strip("…:;, ")}
    return templates | {code: eviction_text(code) for code in EVICTION_TEXTS} | text_examples()


def rows() -> dict[str, tuple[str, str, str]]:
    """Return code -> (example, meaning, fix), as documented."""
    found = (_ROW.fullmatch(line) for line in DOCUMENT.read_text("utf-8").splitlines())
    return {row[1]: (row[2], row[3], row[4]) for row in found if row}


def page(text: str) -> str:
    """Return the page with current examples; meanings and fixes are written by hand."""
    found = examples()

    def current(row: re.Match[str]) -> str:
        example = found.get(row[1], NO_EXAMPLE).replace("|", "/").replace("\n", " ").replace("<", "&lt;")
        return f"| `{row[1]}` | {example} | {row[3]} | {row[4]} |"

    return "\n".join(_ROW.sub(current, line) for line in text.split("\n"))


def test_every_code_of_the_source_is_documented() -> None:
    assert sorted((set(codes_in_source()) | set(TEXTS) | set(EVICTION_TEXTS)) - set(rows())) == []


def test_every_documented_code_exists() -> None:
    source = "".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    assert [code for code in rows() if f'"{code}"' not in source] == []


def test_every_reason_of_a_verdict_or_an_eviction_has_a_rendered_example() -> None:
    assert sorted((set(TEXTS) | set(EVICTION_TEXTS)) - set(examples())) == []


@pytest.mark.parametrize("code", sorted(text_examples()))
def test_rendered_message_is_short_and_clear(code: str) -> None:
    message = text_examples()[code]
    assert 0 < len(message) <= 320
    assert not UNCLEAR.findall(message)


def test_examples_of_the_page_are_current() -> None:
    """`python -m tests.messages.test_messages` writes them anew."""
    text = DOCUMENT.read_text("utf-8")
    assert text == page(text)


if __name__ == "__main__":
    DOCUMENT.write_text(page(DOCUMENT.read_text("utf-8")), "utf-8")
