"""Errors of the SDK. Each names the object and, if there is one, the field that it is about."""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Iterator

# Arguments whose names differ from the field of the request.
_ARGUMENTS = {"cpu": "cpus", "gpu": "gpus"}


class PhalanxError(Exception):
    """Failure of a call. `message` is for users, `about` is the object (KIND/NAME), `field` the argument."""

    def __init__(self, message: str, *, about: str = "", field: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.about = about
        self.field = field


class ConnectionFailedError(PhalanxError):
    """No kubeconfig, invalid credentials, or no answer from the API server."""


class InvalidArgumentError(PhalanxError, ValueError):
    """Invalid argument of a call; `field` is its name."""


class RequestRejectedError(PhalanxError):
    """Request that the API server or the API of a job rejects; `status` is the HTTP status, 0 without one."""

    def __init__(self, message: str, *, about: str = "", field: str = "", status: int = 0) -> None:
        super().__init__(message, about=about, field=field)
        self.status = status


class JobNotFoundError(PhalanxError, LookupError):
    """Missing job, or a name that several jobs have."""


class JobFailedError(PhalanxError):
    """Job that ended without success or was deleted; `state` is its last state, `exit_codes` those of its pods."""

    def __init__(
        self, message: str, *, about: str = "", state: str = "", exit_codes: dict[str, int] | None = None
    ) -> None:
        super().__init__(message, about=about)
        self.state = state
        self.exit_codes = exit_codes or {}


class WaitTimeoutError(PhalanxError, builtins.TimeoutError):
    """Timeout of a wait; the job goes on."""


@contextlib.contextmanager
def translated(about: str = "") -> Iterator[None]:
    """Raise errors of the API client and of orders in the block as errors of the SDK, about the object `about`."""
    from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
    from phalanx.orders.errors import BadNameError, InvalidRequestError, NotFoundError, OrderError

    try:
        yield
    except ConfigError as error:
        raise ConnectionFailedError(str(error)) from error
    except ConnectionLost as error:
        raise ConnectionFailedError(f"cannot reach the API server: {error}") from error
    except ApiError as error:
        raise RequestRejectedError(
            f"request rejected by the API server: {error}", about=about, status=error.status
        ) from error
    except InvalidRequestError as error:
        field = _ARGUMENTS.get(error.field, error.field)
        message = f"invalid {field} {error.value}{error.problem}"
        raise InvalidArgumentError(message, about=about, field=field) from error
    except BadNameError as error:
        raise InvalidArgumentError(error.message, about=about, field="name") from error
    except NotFoundError as error:
        raise JobNotFoundError(error.message, about=about) from error
    except OrderError as error:
        raise RequestRejectedError(error.message, about=about) from error
