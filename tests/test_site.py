"""The documents as a site (`make site`): links lead somewhere, every page can be found, nothing is fetched."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parent.parent


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / ".ci/site_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


site = _load()


def pages_in(navigation: object) -> set[str]:
    """The pages of a part of mkdocs.yml's `nav`."""
    if isinstance(navigation, str):
        return {navigation}
    entries = navigation.values() if isinstance(navigation, dict) else navigation
    assert not isinstance(entries, str)
    return set().union(*(pages_in(each) for each in entries))  # type: ignore[attr-defined]


def test_links_lead_to_files_that_are_there(tmp_path: Path) -> None:
    assert site.prepare(tmp_path / "source") == []


def test_every_page_is_in_the_navigation(tmp_path: Path) -> None:
    site.prepare(tmp_path)
    made = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.md")}
    listed = pages_in(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"])
    assert listed <= made
    assert {page for page in made - listed if not page.startswith("decisions/0")} == set()


def test_the_readme_is_the_first_page() -> None:
    text, wrong = site.rewritten(
        "[try](docs/try.md#rights-and-tenants) [tests](tests/conftest.py)", ROOT / "README.md"
    )
    assert (text, wrong) == ("[try](try.md#rights-and-tenants) tests", [])


def test_links_between_rooms() -> None:
    page = ROOT / "docs/decisions/020-one-record-one-grant.md"
    assert site.rewritten("[a](../gangs.md) [b](../../README.md)", page)[0] == "[a](../gangs.md) [b](../index.md)"
    assert (
        site.rewritten("[c](020-one-record-one-grant.md)", page)[0]
        == "[c](../decisions/020-one-record-one-grant.md)"
    )


def test_broken_link_is_reported_and_code_is_ignored() -> None:
    page = ROOT / "docs/gangs.md"
    assert site.rewritten("[x](nowhere.md)", page)[1] == ["docs/gangs.md: nowhere.md is not there"]
    code = "```\n[x](nowhere.md)\n```\n"
    assert site.rewritten(code, page) == (code, [])


@pytest.mark.parametrize(
    ("html", "fetched"),
    [
        ('<script src="https://cdn.example/x.js"></script>', 1),
        ('<link rel="stylesheet" href="//cdn.example/x.css">', 1),
        ('<img src="http://cdn.example/x.png">', 1),
        ('<a href="https://example.com">out</a><link rel="canonical" href="https://example.com">', 0),
        ('<script src="assets/x.js"></script><img src="pictures/x.png">', 0),
    ],
)
def test_resource_that_a_page_loads_from_another_host_is_reported(tmp_path: Path, html: str, fetched: int) -> None:
    (tmp_path / "index.html").write_text(f"<html>{html}</html>", "utf-8")
    assert len(site.check(tmp_path)) == fetched


def test_styles_fetch_nothing_either(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<html></html>", "utf-8")
    (tmp_path / "a.css").write_text("@import 'https://fonts.example/a.css'; a{background:url(x.png)}", "utf-8")
    assert site.check(tmp_path) == ["a.css fetches https://fonts.example/a.css"]
    assert site.check(tmp_path / "none") != []


def test_the_generator_is_the_one_that_is_pinned() -> None:
    """pyproject.toml's extra `docs` pins the version that `make site` installs."""
    extra = re.search(r"^docs = \[(.*)\]$", (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert extra is not None
    pins = (ROOT / ".ci/site-requirements.txt").read_text("utf-8")
    for name in re.findall(r'"([^"]+)"', extra[1]):
        assert f"\n{name} " in pins
