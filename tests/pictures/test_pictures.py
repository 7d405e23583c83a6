"""Pictures that documents show are there, are those that `make pictures` makes, and are small and complete."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.pictures.diagrams import DIAGRAMS, Diagram
from tests.pictures.pages import VIEWS
from tests.pictures.terminal import COLUMNS, TERMINALS, picture, recorded, stripped

ROOT = Path(__file__).parents[2]
MADE = {*(f"{name}.png" for name in VIEWS), *TERMINALS, *DIAGRAMS}
SHOWN = sorted(
    (path, target)
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    for target in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", path.read_text("utf-8"))
)
_LARGEST = 150_000  # bytes
_FETCHED = re.compile(r"(?:href|src)=[\"'](?!#)|url\((?!#)|@import", re.IGNORECASE)


@pytest.mark.parametrize(("document", "target"), SHOWN, ids=lambda value: getattr(value, "stem", value))
def test_a_picture_that_is_shown_is_there_and_has_words(document: Path, target: str) -> None:
    assert (document.parent / target).is_file()
    assert f"![]({target})" not in document.read_text("utf-8"), "somebody who does not see it is told nothing"


def test_committed_pictures_equal_the_generated_ones() -> None:
    assert {path.name for path in (ROOT / "docs/pictures").iterdir()} == MADE


def test_committed_pictures_are_used_in_documents() -> None:
    assert {Path(target).name for _, target in SHOWN} >= MADE


@pytest.mark.parametrize("name", sorted(MADE))
def test_a_picture_is_small_and_complete(name: str) -> None:
    path = ROOT / "docs/pictures" / name
    content = path.read_bytes()
    assert len(content) < _LARGEST
    if path.suffix == ".png":
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        width, height = struct.unpack(">II", content[16:24])
        assert width == 1280
        assert 400 < height <= 1000
    else:
        assert ElementTree.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg"
        assert not _FETCHED.search(content.decode())


@pytest.mark.parametrize("name", sorted(DIAGRAMS))
def test_a_diagram_is_as_it_is_drawn(name: str) -> None:
    assert (ROOT / "docs/pictures" / name).read_text("utf-8") == DIAGRAMS[name]().svg()


def test_text_in_a_diagram_is_text() -> None:
    drawn = Diagram(10, 10, "<b>")
    drawn.box(0, 0, 5, 5, "a & b", "<i>")
    assert [
        each.text for each in ElementTree.fromstring(drawn.svg()).iter() if each.text in ("<b>", "a & b", "<i>")
    ] == [
        "<b>",
        "a & b",
        "<i>",
    ]


def test_commands_have_a_terminal_of_the_size_of_the_picture(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT / "packages/local/src"))),
    }
    printed = recorded("phalanx why --help", environment, tmp_path)
    assert "Usage:" in printed
    assert max(map(len, printed.splitlines())) <= COLUMNS
    with pytest.raises(RuntimeError, match="o such command"):
        recorded("phalanx nonsense", environment, tmp_path)


def test_recorded_terminal_shows_commands_and_colours_and_embeds_no_font() -> None:
    svg = picture([("phalanx why", "\x1b[31mred\x1b[0m <plain>\n"), ("phalanx jobs", "none")], "phalanx")
    text = "".join(ElementTree.fromstring(svg).itertext()).replace("\xa0", " ")
    assert "phalanx why" in text
    assert "<plain>" in text
    assert "phalanx jobs" in text
    assert "\x1b" not in text
    assert not _FETCHED.search(svg)
    assert stripped("@font-face { src: url('https://cdn.example/a.woff') }x") == "x"
