"""Which nodes have which container images, and how good that is for pods that need them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from phalanx.cluster.resource_space import IntArray

Images = Iterable[tuple[str, int]]

# kube-scheduler, imagelocality/image_locality.go: less than this makes no difference, more than that is as good.
_LEAST = 23 * 2**20
_MOST_EACH = 1000 * 2**20
_BEST = 100


class ImageTable:
    """Bytes by image name and row. `wanted` images are those that somebody has asked for so far."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[int, int]] = {}
        self._wanted: set[str] = set()

    def set(self, row: int, last: Images, now: Images) -> bool:
        """Notes what a row has now instead of `last`; whether that concerns an image that is wanted."""
        before, after = dict(last), dict(now)
        concerns = False
        for name in before.keys() - after.keys():
            rows = self._rows[name]
            del rows[row]
            if not rows:
                del self._rows[name]
            concerns |= name in self._wanted
        for name, size in after.items():
            if before.get(name) != size:
                self._rows.setdefault(name, {})[row] = size
                concerns |= name in self._wanted
        return concerns

    def points(self, names: tuple[str, ...], containers: int, capacity: int, nodes: int) -> IntArray | None:
        """int64[capacity]: 0..100 by ImageLocality; None where no node has anything of it.

        An image counts with its size on the node times the part of all `nodes` that have it, so that pods do not
        crowd where an image happens to be (kube-scheduler 1.36, image_locality.go), in whole numbers. How much is
        as good as it gets goes by the number of `containers`; images of volumes come on top.
        """
        total: IntArray | None = None
        for name in names:
            self._wanted.add(name)
            rows = self._rows.get(name)
            if rows is None:
                continue
            if total is None:
                total = np.zeros(capacity, dtype=np.int64)
            places = np.fromiter(rows.keys(), dtype=np.intp, count=len(rows))
            sizes = np.fromiter(rows.values(), dtype=np.int64, count=len(rows))
            np.add.at(total, places, sizes * len(rows) // max(1, nodes))
        if total is None:
            return None
        most = _MOST_EACH * max(1, containers)
        points: IntArray = _BEST * (total.clip(_LEAST, most) - _LEAST) // (most - _LEAST)
        return points
