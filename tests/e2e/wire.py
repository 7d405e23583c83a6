"""A transport that can be watched, that loses answers, and that dies in the middle of a request."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.errors import ConnectionLost
from phalanx.kube.http.connections import default_transport
from phalanx.kube.http.transport import HttpRequest, HttpResponse, Transport
from phalanx_local.authorization.attributes import Attributes
from tests.e2e.rights import asked_of

READS = frozenset({"GET", "HEAD"})
# As the method of a rule: every one that changes something.
WRITES = "*"


@dataclass
class Rule:
    """Fault of the `nth` request (1 is the next) whose method and path match, and of the `times - 1` after it.

    `lose` cuts the connection, `die` ends the process from the server's view; both either before the request is
    sent or, with `after`, when it has taken effect.
    """

    method: str
    path: re.Pattern[str]
    nth: int
    times: int
    die: bool
    after: bool
    seen: int = 0

    def strikes(self, call: HttpRequest) -> bool:
        if self.method not in (call.method, WRITES if call.method not in READS else ""):
            return False
        if not self.path.search(call.target.partition("?")[0]):
            return False
        self.seen += 1
        return self.nth <= self.seen < self.nth + self.times


class Wire:
    """The connection of one scheduler process.

    `writes` are its requests except reads, as `METHOD path`; `asked` is the set of needed rights.
    """

    def __init__(self) -> None:
        self.asked: set[Attributes] = set()
        self.writes: list[str] = []
        self.rules: list[Rule] = []
        self.dead = asyncio.Event()
        self.buried = asyncio.Event()

    def lose(self, method: str, path: str, *, nth: int = 1, times: int = 1, after: bool = False) -> None:
        self.rules.append(Rule(method, re.compile(path), nth, times, False, after))

    def die(self, method: str, path: str, *, nth: int = 1, after: bool = False) -> None:
        self.rules.append(Rule(method, re.compile(path), nth, 1, True, after))

    def transports(
        self, config: ClusterConfig, context: ssl.SSLContext | None, *, user_agent: str, max_connections: int
    ) -> Transport:
        inner = default_transport(config, context, user_agent=user_agent, max_connections=max_connections)
        return _Tapped(self, inner)

    def count(self, matches: Callable[[str], bool] = lambda write: True) -> int:
        return sum(1 for write in self.writes if matches(write))


class _Tapped:
    def __init__(self, wire: Wire, inner: Transport) -> None:
        self._wire = wire
        self._inner = inner

    async def request(self, call: HttpRequest, identity: ClientIdentity) -> HttpResponse:
        await self._live()
        rule = next((rule for rule in self._wire.rules if rule.strikes(call)), None)
        if rule is not None and not rule.after:
            await self._strike(rule)
        self._wire.asked.add(asked_of(call.method, call.target))
        if call.method not in READS:
            self._wire.writes.append(f"{call.method} {call.target}")
        answer = await self._inner.request(call, identity)
        if rule is not None:
            await self._strike(rule)
        await self._live()
        return answer

    def stream(
        self, target: str, identity: ClientIdentity, accept: str, read_timeout: float
    ) -> AsyncGenerator[HttpResponse, None]:
        self._wire.asked.add(asked_of("GET", target))
        return self._inner.stream(target, identity, accept, read_timeout)

    async def close(self) -> None:
        await self._inner.close()

    async def _strike(self, rule: Rule) -> None:
        if rule.die:
            self._wire.dead.set()
            await self._live()
        raise ConnectionLost("the test cut the connection")

    async def _live(self) -> None:
        """Refuse requests of a dead process: it sends and receives nothing until its tasks are cancelled."""
        if self._wire.dead.is_set():
            await self._wire.buried.wait()
            raise asyncio.CancelledError
