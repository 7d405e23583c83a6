"""Images that cannot be pulled, by option: nothing here pulls any, so without it every image is there."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

import msgspec


class Images(msgspec.Struct, frozen=True):
    """`absent` are patterns of image names, such as `registry.invalid/*`."""

    absent: tuple[str, ...] = ()

    def missing(self, image: str) -> bool:
        return any(fnmatchcase(image, pattern) for pattern in self.absent)


ALL_IMAGES: Final = Images()
