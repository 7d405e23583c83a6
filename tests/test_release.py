"""Files of a release (`make release`): README of the package index, metadata, notes, chart, checksums."""

from __future__ import annotations

import importlib.util
import re
import sys
import tarfile
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
PROJECTS = {
    path: tomllib.loads((ROOT / path).read_text("utf-8"))
    for path in ("pyproject.toml", "packages/local/pyproject.toml")
}
SITE = "https://site.example/"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"ci_{name}", ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


release, readme = load("release"), load("absolute_readme")


def test_readme_of_the_index_has_no_relative_link_or_picture() -> None:
    text = readme.absolute((ROOT / "README.md").read_text("utf-8"), SITE)
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert len(targets) > 50
    assert [target for target in targets if not target.startswith("https://")] == []
    assert f"]({SITE}pictures/overview-light.png)" in text


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[a](docs/gangs.md#x)", f"[a]({SITE}gangs.html#x)"),
        ("![a](docs/pictures/a.svg)", f"![a]({SITE}pictures/a.svg)"),
        ("[a](docs/decisions/)", f"[a]({SITE}decisions/index.html)"),
        ("[a](CONTRIBUTING.md)", f"[a]({SITE}contributing.html)"),
        ("[a](examples/)", "a"),
        ("[a](https://b.example/c)", "[a](https://b.example/c)"),
    ],
)
def test_link_of_the_readme_leads_to_its_page(link: str, expected: str) -> None:
    assert readme.absolute(link, SITE) == expected


@pytest.mark.parametrize("path", PROJECTS)
def test_distribution_has_urls_and_classifiers(path: str) -> None:
    project = PROJECTS[path]["project"]
    assert project["urls"]["Documentation"].startswith("https://")
    assert {"Programming Language :: Python :: 3.11", "Typing :: Typed"} <= set(project["classifiers"])


def test_extra_all_has_every_extra_for_users() -> None:
    extras = PROJECTS["pyproject.toml"]["project"]["optional-dependencies"]
    (entry,) = extras["all"]
    named = set(entry.partition("[")[2].rstrip("]").split(","))
    assert named == set(extras) - {"all", "browser", "dev", "docs"}


def test_versions_of_distributions_and_chart_are_equal() -> None:
    versions = {project["project"]["version"] for project in PROJECTS.values()}
    chart = (ROOT / "charts/phalanx/Chart.yaml").read_text("utf-8")
    assert versions == set(re.findall(r"(?m)^(?:version|appVersion): (\S+)$", chart))


def test_notes_are_the_section_of_the_version() -> None:
    changelog = "# Changelog\n\n## [Unreleased]\n\n- new\n\n## [1.2.0]\n\n### Added\n\n- a\n\n## [1.1.0]\n\n- b\n"
    assert release.release_notes(changelog, "1.2.0") == "# Phalanx 1.2.0\n\n### Added\n\n- a\n"
    with pytest.raises(SystemExit, match=r"no section of 1\.2"):
        release.release_notes(changelog, "1.2")
    version = PROJECTS["pyproject.toml"]["project"]["version"]
    assert "- " in release.release_notes((ROOT / "CHANGELOG.md").read_text("utf-8"), version)


def test_chart_archive_has_equal_bytes_and_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    contents = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(release, "DIST", tmp_path / name)
        release.write_chart("0.1.0")
        contents.append((tmp_path / name / "phalanx-0.1.0.tgz").read_bytes())
    assert contents[0] == contents[1]
    with tarfile.open(tmp_path / "a" / "phalanx-0.1.0.tgz") as archive:
        names = archive.getnames()
    assert {"phalanx/Chart.yaml", "phalanx/values.yaml"} <= set(names)
    assert all(name.startswith("phalanx/") for name in names)


def test_checksums_are_those_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"")
    (tmp_path / "SHA256SUMS").write_bytes(b"old")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert release.checksums(tmp_path) == f"{empty}  b\n"
