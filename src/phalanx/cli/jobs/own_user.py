"""User name of the caller, as the API server reports it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient

_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


async def own_user_names(client: KubeClient) -> set[str]:
    """Return the caller's user name and its short form. Raises click.ClickException.

    The short form of an address is the part before the @, of a service account its name.
    """
    from phalanx.kube.errors import ApiError

    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await client.create(_REVIEWS, review)
    except ApiError as error:
        raise click.ClickException(
            f"--me: cannot read your user name from the API server ({error.message}); use --of USER"
        ) from error
    name = str(((answer.get("status") or {}).get("userInfo") or {}).get("username") or "")
    if not name:
        raise click.ClickException("--me: the API server returned no user name; use --of USER")
    return {name, name.partition("@")[0], name.rpartition(":")[2]} - {""}
