"""Who asks, by the API server's word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient

_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


async def names_of_asker(client: KubeClient) -> set[str]:
    """The user name that the API server has for us, and its short form: of an address what is before the @, of a
    service account its name. Raises click.ClickException."""
    from phalanx.kube.errors import ApiError

    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await client.create(_REVIEWS, review)
    except ApiError as error:
        raise click.ClickException(
            f"--me: the API server does not say who you are ({error.message}); use --of USER"
        ) from error
    name = str(((answer.get("status") or {}).get("userInfo") or {}).get("username") or "")
    if not name:
        raise click.ClickException("--me: the API server knows no name of yours; use --of USER")
    return {name, name.partition("@")[0], name.rpartition(":")[2]} - {""}
