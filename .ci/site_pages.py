"""The documents as a site: what goes in, and what came out (`make site`).

`prepare` copies `docs/`, the README (as the first page), CONTRIBUTING and CHANGELOG to where the generator reads,
and turns links to files that are no pages (tests, examples) into text: the site has no sources to show. A link to a
file that is not there fails. `check` looks at what was built: nothing may be loaded from another host.

Nothing here is of one generator: they are given plain Markdown, and are asked for HTML.
"""

from __future__ import annotations

import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"
#: Pages that lie elsewhere in the repository than in docs/: where they go.
ELSEWHERE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)(?P<title>\s+\"[^\"]*\")?\)")
_IMAGE = re.compile(r"!\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
# What a browser fetches by itself; a link that somebody may click is none of it.
_FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
_FETCHED_RELATIONS = {"stylesheet", "icon", "preload", "preconnect", "dns-prefetch", "modulepreload", "prefetch"}


def page_of(path: Path) -> str | None:
    """Where in the site a file of the repository is; None if it is no part of the site."""
    name = path.relative_to(ROOT).as_posix()
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    return name.removeprefix("docs/") if name.startswith("docs/") else None


def rewritten(text: str, path: Path) -> tuple[str, list[str]]:
    """(the text of the page `path` of the repository with links as in the site, what is wrong with them)."""
    wrong: list[str] = []
    here = page_of(path)
    assert here is not None

    def target_of(found: re.Match[str]) -> str | None:
        target, _, anchor = found["target"].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return found["target"]
        there = (path.parent / target).resolve()
        if not there.is_relative_to(ROOT) or not there.exists():
            wrong.append(f"{path.relative_to(ROOT)}: {found['target']} is not there")
            return None
        if there.is_dir():
            there = there / "index.md"
        page = page_of(there)
        if page is None:
            return None
        up = "../" * here.count("/")
        return f"{up}{page}" + (f"#{anchor}" if anchor else "")

    def link(found: re.Match[str]) -> str:
        target = target_of(found)
        return found["text"] if target is None else f"[{found['text']}]({target}{found['title'] or ''})"

    def image(found: re.Match[str]) -> str:
        target = target_of(found)
        return found["text"] if target is None else f"![{found['text']}]({target})"

    lines, fenced = [], False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        lines.append(line if fenced else _IMAGE.sub(image, _LINK.sub(link, line)))
    return "".join(lines), wrong


def decisions() -> str:
    """The page that lists the decisions, made from their titles."""
    rows = [
        f"- [{path.read_text('utf-8').splitlines()[0].removeprefix('# ')}]({path.name})"
        for path in sorted((ROOT / "docs/decisions").glob("*.md"))
    ]
    return "# Decisions\n\nQuestions, decisions, reasons and costs.\n\n" + "\n".join(rows) + "\n"


def prepare(source: Path = SOURCE) -> list[str]:
    """Writes the pages; gives what is wrong with their links."""
    shutil.rmtree(source, ignore_errors=True)
    wrong: list[str] = []
    for path in [*(ROOT / name for name in ELSEWHERE), *sorted((ROOT / "docs").rglob("*"))]:
        page = page_of(path)
        if page is None or not path.is_file():
            continue
        (source / page).parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            text, faults = rewritten(path.read_text("utf-8"), path)
            (source / page).write_text(text, "utf-8")
            wrong += faults
        else:
            shutil.copyfile(path, source / page)
    (source / "decisions" / "index.md").write_text(decisions(), "utf-8")
    return wrong


class Fetches(HTMLParser):
    """Collects what a page makes a browser fetch from other hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        if tag == "link" and not set(values.get("rel", "").split()) & _FETCHED_RELATIONS:
            return
        address = values.get(_FETCHED.get(tag, ""), "")
        if re.match(r"(?:[a-z]+:)?//", address):
            self.found.append(f"<{tag}> {address}")


def check(site: Path = SITE) -> list[str]:
    """What pages of a built site fetch from other hosts; one line each."""
    told: list[str] = []
    pages = sorted(site.rglob("*.html"))
    if not pages:
        return [f"{site} has no pages"]
    for page in pages:
        reader = Fetches()
        reader.feed(page.read_text("utf-8"))
        told += [f"{page.relative_to(site)} fetches {each}" for each in reader.found]
    for style in sorted(site.rglob("*.css")):
        external = re.findall(
            r"url\([\"']?((?:https?:)?//[^)\"']+)|@import\s+[\"']((?:https?:)?//[^\"']+)", style.read_text("utf-8")
        )
        told += [f"{style.relative_to(site)} fetches {first or second}" for first, second in external]
    return told


if __name__ == "__main__":
    faults = {"prepare": prepare, "check": check}[sys.argv[1]]()
    for fault in faults:
        print(f"site: {fault}", file=sys.stderr)
    sys.exit(1 if faults else 0)
