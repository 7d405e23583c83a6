"""Filter of rows that the user types after `/`: words that must all match, such as `train queue:research
!running`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

R = TypeVar("R")

Fields = Mapping[str, Callable[[R], str]]


class Filter(Generic[R]):
    """Filter of rows in a panel.

    `WORD` matches in any field, `FIELD:WORD` equals one field, `!` negates; case is ignored. An unknown field
    makes an ordinary word.
    """

    def __init__(self, text: str, fields: Fields[R]) -> None:
        self.text = text
        self._fields = fields
        self._wanted = [self._read(word) for word in text.lower().split()]

    def _read(self, word: str) -> tuple[bool, str, str]:
        wanted = not word.startswith("!")
        word = word if wanted else word[1:]
        field, colon, value = word.partition(":")
        return (wanted, field, value) if colon and field in self._fields else (wanted, "", word)

    def __call__(self, row: R) -> bool:
        if not self._wanted:
            return True
        texts: str | None = None
        for wanted, field, word in self._wanted:
            if field:
                matches = self._fields[field](row).lower() == word
            else:
                if texts is None:
                    texts = "\n".join(read(row) for read in self._fields.values()).lower()
                matches = word in texts
            if matches is not wanted:
                return False
        return True
