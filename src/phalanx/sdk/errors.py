"""Errors of the SDK. Each names the object and, if there is one, the field that it is about."""

from __future__ import annotations

import builtins
import concurrent.futures
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


class UnpicklableError(PhalanxError, TypeError):
    """Function, argument or result that cannot be sent to another process."""


class GangUnreachableError(PhalanxError):
    """Gang whose port this process cannot reach, or that refuses its certificate."""


class GangEndedError(PhalanxError, concurrent.futures.BrokenExecutor):
    """Gang that failed, was deleted, or was shut down before a task ended."""


class WorkerLostError(PhalanxError):
    """Task whose worker was lost more often than it is retried."""


class TaskTimeoutError(PhalanxError, builtins.TimeoutError):
    """Task that did not end within its timeout; its process was ended."""


class PythonVersionError(PhalanxError):
    """Other minor version of Python in the workers than in this process."""


class RemoteTraceback(Exception):  # noqa: N818 - like that of concurrent.futures
    """Traceback of a worker, as the cause of the exception that a task raised."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


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
        message = f"{error.reason}; use job.{error.order}()" if error.order else error.message
        raise RequestRejectedError(message, about=about) from error
