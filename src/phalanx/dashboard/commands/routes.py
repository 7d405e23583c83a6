"""Routes of `/api/v1/commands`: the answers that commands print for users without rights to the whole cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from phalanx.dashboard.access import Viewer
from phalanx.dashboard.commands.answers import CommandAnswers, CommandQuestion, CommandRoute

ViewerOf = Callable[[web.Request], Awaitable[Viewer]]
"""Function that authenticates the viewer of a request. Raises ViewerAccessError."""


def command_routes(answers: CommandAnswers, viewer_of: ViewerOf) -> list[web.RouteDef]:
    """Return one route for each command."""
    return [
        web.route(command.method, f"/api/v1/commands/{name}", _handler(command, viewer_of))
        for name, command in answers.commands.items()
    ]


def _handler(command: CommandRoute, viewer_of: ViewerOf) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        viewer = await viewer_of(request)
        body = await command.answer(CommandQuestion(viewer, request.query, request.read, request.path))
        return web.Response(body=body, content_type="application/json")

    return handle
