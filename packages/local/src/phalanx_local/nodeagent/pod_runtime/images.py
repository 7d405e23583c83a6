"""Images whose pull fails, by option; no image is really pulled, so all other images are present."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

import msgspec


class Images(msgspec.Struct, frozen=True):
    """Images by name; `absent` contains patterns of missing images, such as `registry.invalid/*`."""

    absent: tuple[str, ...] = ()

    def missing(self, image: str) -> bool:
        return any(fnmatchcase(image, pattern) for pattern in self.absent)


ALL_IMAGES: Final = Images()
