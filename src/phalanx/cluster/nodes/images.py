"""Container images of nodes, and their scores for pods that need them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from phalanx.cluster.resource_space import IntArray

Images = Iterable[tuple[str, int]]

# kube-scheduler, imagelocality/image_locality.go: thresholds of the size below and above which the score is
# constant.
_LEAST = 23 * 2**20
_MOST_EACH = 1000 * 2**20
_BEST = 100


class ImageTable:
    """Bytes of container images by name and node row. `wanted` images are those that scores have needed so far."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[int, int]] = {}
        self._wanted: set[str] = set()

    def set(self, row: int, last: Images, now: Images) -> bool:
        """Replace a node row's images `last` by `now`. Return whether a wanted image is affected."""
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
        """Return int64[capacity]: scores 0..100 of ImageLocality; None if no node has any of the images.

        An image counts with its size on the node times the share of all `nodes` that have it, so that pods do not
        crowd on few nodes (kube-scheduler 1.36, image_locality.go), in whole numbers. The upper threshold depends
        on the number of `containers`; images of volumes are added.
        """
        total: IntArray | None = None
        for name in names:
            self._wanted.add(name)
            rows = self._rows.get(name)
            if rows is None:
                continue
            if total is None:
                total = np.zeros(capacity, dtype=np.int64)
            row_numbers = np.fromiter(rows.keys(), dtype=np.intp, count=len(rows))
            sizes = np.fromiter(rows.values(), dtype=np.int64, count=len(rows))
            np.add.at(total, row_numbers, sizes * len(rows) // max(1, nodes))
        if total is None:
            return None
        maximum = _MOST_EACH * max(1, containers)
        points: IntArray = _BEST * (total.clip(_LEAST, maximum) - _LEAST) // (maximum - _LEAST)
        return points
