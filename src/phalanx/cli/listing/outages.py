"""Lists that continue during outages of the API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def survived_outage(complain: Callable[[str], None]) -> Iterator[None]:
    """Report a lost connection or a server error inside the block by `complain`, and continue; raise other API
    errors."""
    from phalanx.kube.errors import ApiError, ConnectionLost

    try:
        yield
    except ConnectionLost as error:
        complain(f"cannot reach the API server: {error}")
    except ApiError as error:
        if error.status < 500 and error.status != 429:
            raise
        complain(f"request rejected by the API server: {error}")
