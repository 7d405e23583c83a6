"""Metadata hook of hatchling: the README of a package index, with absolute links and pictures.

A package index shows the README alone, so relative links lead nowhere there. In the repository and in the site they
stay relative. Links to files that are no pages of the site become text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_ELSEWHERE = {"CONTRIBUTING.md": "contributing.html", "CHANGELOG.md": "changelog.html", "README.md": "index.html"}


def absolute(text: str, site: str) -> str:
    """Return the Markdown text with links to pages and pictures of `site`, the URL of the documents."""

    def link(found: re.Match[str]) -> str:
        target, hash_mark, anchor = found["target"].partition("#")
        if "://" in target or target.startswith("mailto:") or not target:
            return found[0]
        if target in _ELSEWHERE:
            page = _ELSEWHERE[target]
        elif target.startswith("docs/"):
            page = target.removeprefix("docs/")
            page = f"{page}index.html" if page.endswith("/") else re.sub(r"\.md$", ".html", page)
        else:
            return found["text"]
        return f"{found['image']}[{found['text']}]({site.rstrip('/')}/{page}{hash_mark}{anchor})"

    return _LINK.sub(link, text)


class CustomMetadataHook(MetadataHookInterface):
    """Fills the dynamic field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text("utf-8")
        site = metadata["urls"]["Documentation"]
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, site)}
