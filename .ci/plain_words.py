"""Print how plain the language of a tree is: indirect words per 1,000 words, docstrings with an indirect opening.

usage: plain_words.py [PATH ...]     (default: src, tests and docs)

Three groups of words make readers guess: words for persons where the subject is a pod, gang, queue or node; "what"
where the noun is missing; light verbs ("keep", "take", "give") in place of the field's verb. The counter reads
docstrings, comments, messages of at least five words, and pages without their code. It is a mirror, not a limit:
`make lint` prints it and never fails on it. The last line has the figures of well-written peers for comparison.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_GROUPS = {
    "persons": "who whom whose whoever somebody anybody nobody everybody others goes told tells anew meanwhile his "
    "him he",
    "what": "what whatever",
    "light verbs": "keep keeps kept take takes taken took give gives given gave leave leaves hold holds held stand "
    "stands stood stay stays say says said ask asks asked come comes came become becomes tell those these",
}
_GROUP_OF_WORD = {word: group for group, words in _GROUPS.items() for word in words.split()}
_INDIRECT_OPENING = re.compile(
    r"\s*(?:What|Whether|Of|The same|If|How|Those|That|So|As|In|For|Who|Which|When|Where|Whose)\b"
)
_WORD = re.compile(r"[A-Za-z']+")
# A line of comment, or two spaces and a comment after code; much faster than a tokenizer.
_COMMENT = re.compile(r"(?m)(?:^ *|  )#:? (.*)$")
_SHORTEST_MESSAGE = 5
_PEERS = (
    "aiohttp, click, asyncio, prometheus_client: persons 0.1 to 0.7, what 0.2 to 1.0, light verbs 4 to 6, openings "
    "at most 1 %"
)


class Prose(NamedTuple):
    """Text for people, and whether it is a docstring."""

    text: str
    docstring: bool = False


class Counts(NamedTuple):
    """Words of a tree, hits per group of words, docstrings, and docstrings with an indirect opening."""

    words: int
    hits: dict[str, int]
    docstrings: int
    openings: int

    def __str__(self) -> str:
        rates = ", ".join(f"{name} {1000 * count / max(1, self.words):.1f}" for name, count in self.hits.items())
        share = 100 * self.openings / max(1, self.docstrings)
        return f"{rates} per 1,000 of {self.words:,} words, openings {share:.0f} %"


def prose_of_source(source: str) -> Iterator[Prose]:
    """Yield the docstrings, messages and comments of Python source."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings, parts = set[ast.expr](), set[ast.expr]()
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            statement = node.body[0]
            assert isinstance(statement, ast.Expr)
            docstrings.add(statement.value)
        elif isinstance(node, ast.JoinedStr):
            parts.update(node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            literals = (part.value for part in node.values if isinstance(part, ast.Constant))
            text = " ".join(literal for literal in literals if isinstance(literal, str))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            text = node.value
        else:
            continue
        if node in docstrings or len(text.split()) >= _SHORTEST_MESSAGE:
            yield Prose(text, node in docstrings)
    for comment in _COMMENT.findall(source):
        yield Prose(comment)


def prose_of_page(page: str) -> Iterator[Prose]:
    """Yield the lines of a Markdown page without code and link targets."""
    fenced = False
    for line in page.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield Prose(re.sub(r"`[^`]*`|\]\([^)]*\)", " ", line))


def count(path: Path) -> Counts:
    """Count over all Python files and pages of a tree."""
    words = docstrings = openings = 0
    hits = dict.fromkeys(_GROUPS, 0)
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.suffix not in (".py", ".md"):
            continue
        text = file.read_text("utf-8")
        for prose in prose_of_source(text) if file.suffix == ".py" else prose_of_page(text):
            for word in _WORD.findall(prose.text):
                words += 1
                if (group := _GROUP_OF_WORD.get(word.lower())) is not None:
                    hits[group] += 1
            docstrings += prose.docstring
            openings += prose.docstring and _INDIRECT_OPENING.match(prose.text) is not None
    return Counts(words, hits, docstrings, openings)


def main(arguments: list[str]) -> None:
    """Print one line per path, and the peers' line."""
    for name in arguments or ["src", "packages", "tests", "docs"]:
        print(f"{name:8} {count(Path(name))}")
    print(f"peers    {_PEERS}")


if __name__ == "__main__":
    main(sys.argv[1:])
