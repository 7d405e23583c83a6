"""Container images whose pull fails, by command-line option; no image is really pulled, so all other images are
present."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

import msgspec


class Images(msgspec.Struct, frozen=True):
    """Known images by name; `absent` contains patterns of images whose pull fails, such as `registry.invalid/*`."""

    absent: tuple[str, ...] = ()

    def missing(self, image: str) -> bool:
        return any(fnmatchcase(image, pattern) for pattern in self.absent)


ALL_IMAGES: Final = Images()
