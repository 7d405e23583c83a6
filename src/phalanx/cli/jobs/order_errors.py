"""Refusals of orders and submissions as errors of a command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

# Options whose names differ from the field of the request.
_OPTIONS = {"minimum": "min"}


@contextlib.contextmanager
def shown_errors() -> Iterator[None]:
    """Raise an OrderError of the block as click.ClickException; as click.UsageError if an argument is invalid."""
    from phalanx.orders.errors import BadNameError, InvalidRequestError, OrderError

    try:
        yield
    except InvalidRequestError as error:
        option = _OPTIONS.get(error.field, error.field).replace("_", "-")
        raise click.UsageError(f"invalid --{option} {error.value}{error.problem}") from error
    except BadNameError as error:
        raise click.UsageError(error.message) from error
    except OrderError as error:
        raise click.ClickException(error.message) from error
