"""Leader election on a Lease (coordination.k8s.io/v1), with a deadline that fences our own writes."""

from __future__ import annotations

import asyncio
import logging
import random as random_module
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.paths import Resource
from phalanx.kube.timestamps import format_micro_time

__all__ = ["LeaderElector", "LeadershipLost"]

log = logging.getLogger(__name__)

LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
#: A candidate waits the retry period and up to this much of it more, so that candidates do not march in step.
JITTER = 1.2
#: Who has lost the lease asks so many seconds at most who has it.
_LOOK = 1.0


class LeadershipLost(Exception):  # noqa: N818 - what happened, not what was done wrong
    """The lease was not renewed in time, or somebody else has it. Stop writing, and exit."""

    def __init__(self, message: str, because: str) -> None:
        super().__init__(message)
        #: The same for people.
        self.because = because


class LeaderElector:
    """Acquires a lease, keeps it, and knows at any moment until when it may still be trusted.

    Whether another holder's lease has expired is judged by our own monotonic clock, from when its record was
    last seen to change; clocks of other machines do not matter. We count our own renewals from before they
    were sent and trust them for ``renew_deadline`` only, which is shorter than the ``lease_duration`` that
    the others wait: that gap is what keeps two leaders apart. All times in seconds.

    Give it a client of its own: a renewal must not queue behind five thousand bindings.
    """

    def __init__(
        self,
        client: KubeClient,
        name: str,
        *,
        identity: str,
        namespace: str | None = None,
        lease_duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        if not lease_duration > renew_deadline > retry_period * (1 + JITTER) or retry_period <= 0:
            raise ValueError(
                f"leader election: lease duration {lease_duration:g} s must exceed the renew deadline "
                f"{renew_deadline:g} s, and that {1 + JITTER:g} retry periods of {retry_period:g} s"
            )
        if lease_duration < 1 or lease_duration != int(lease_duration):
            raise ValueError(f"leader election: lease duration {lease_duration:g} s must be whole seconds")
        if not identity:
            raise ValueError("leader election: the identity must not be empty")
        self.identity = identity
        self.leading = asyncio.Event()
        #: Who holds the lease as far as we know; "" for nobody.
        self.holder = ""
        self._client = client
        self._collection = LEASES.path(namespace or client.namespace)
        self._path = LEASES.path(namespace or client.namespace, name)
        self._name = name
        self._lease_duration = int(lease_duration)
        self._renew_deadline = renew_deadline
        self._retry_period = retry_period
        self._clock = clock
        self._wall_clock = wall_clock
        self._sleep = sleep
        self._random = random
        self._trusted_until = float("-inf")
        #: The lease as last read or written; None when it has to be read.
        self._lease: dict[str, Any] | None = None
        self._seen_version = ""
        #: What was told of the last failure, which is not told again before something else happens.
        self._told = ""
        self._seen_at = float("-inf")

    def is_leader(self, margin: float = 0.0) -> bool:
        """Whether a write that is sent now, and arrives within ``margin`` seconds, is still ours to make.

        Only compares two numbers: safe to call from another thread, before every write.
        """
        return self._clock() + margin < self._trusted_until

    async def run(self) -> None:
        """Acquire, set ``leading``, renew. Ends by LeadershipLost, or by cancellation, which gives the lease back.

        Cancel it only after the last write is answered.
        """
        try:
            while not await self._try():
                await self._sleep(self._retry_period * (1 + JITTER * self._random()))
            log.info("leading: %s holds lease %s", self.identity, self._path)
            self.leading.set()
            await self._keep()
        finally:
            self.leading.clear()
            await self._release()

    async def _keep(self) -> None:
        while True:
            await self._sleep(min(self._retry_period, max(0.0, self._trusted_until - self._clock())))
            if self.is_leader():
                await self._try()
            if self.holder != self.identity:
                self._trusted_until = float("-inf")
                raise self._loss()
            if not self.is_leader():
                await self._look()
                raise self._loss()

    async def _look(self) -> None:
        """Who holds what we could not renew, if that is to be learned in a moment: nothing is written any more."""
        with suppress(ApiError, ConnectionLost, ConfigError, TimeoutError):
            async with asyncio.timeout(min(_LOOK, self._retry_period)):
                self._observe(await self._client.get(self._path))

    def _loss(self) -> LeadershipLost:
        holder, deadline = self.holder, self._renew_deadline
        if holder == self.identity:
            late = f"not renewed within {deadline:g} s"
            return LeadershipLost(
                f"{self._path}: {late}", f"the lease was lost: it could not be renewed within {deadline:g} s"
            )
        if not holder:
            return LeadershipLost(
                f"{self._path}: now held by nobody", "the lease was lost: somebody has emptied it"
            )
        because = f"the lease was lost to another replica: {holder} holds it"
        return LeadershipLost(f"{self._path}: now held by {holder}", because)

    async def _try(self) -> bool:
        """One attempt to acquire or renew; whether it succeeded. Failures are logged, not raised."""
        started = self._clock()
        patience = self._renew_deadline / 2
        if self.is_leader():
            patience = min(patience, self._trusted_until - started)
        try:
            async with asyncio.timeout(patience):
                success = await self._write(started)
        except (ApiError, ConnectionLost, ConfigError, TimeoutError) as error:
            self._lease = None  # whatever happened to the lease, the next attempt has to look
            if not (isinstance(error, ApiError) and error.status == 409):
                words = _words(error, patience)
                log.log(logging.DEBUG if words == self._told else logging.WARNING, "%s: %s", self._path, words)
                self._told = words
            return False
        self._told = ""
        if success:
            self._trusted_until = started + self._renew_deadline
        return success

    async def _write(self, now: float) -> bool:
        lease = self._lease if self.holder == self.identity else None
        if lease is None:
            try:
                lease = await self._client.get(self._path)
            except ApiError as error:
                if error.status != 404 or not error.from_api_server:
                    raise
                return await self._create()
            self._observe(lease)
        spec = lease.get("spec") or {}
        if (
            self.holder
            and self.holder != self.identity
            and now < self._seen_at + _seconds(spec, self._lease_duration)
        ):
            return False
        moment = format_micro_time(self._wall_clock())
        ours = self.holder == self.identity
        wanted = {
            **spec,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._lease_duration,
            "acquireTime": spec.get("acquireTime") if ours and spec.get("acquireTime") else moment,
            "renewTime": moment,
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (0 if ours else 1),
        }
        # The resourceVersion in the metadata makes this a comparison and a swap: 409 means a lost race.
        self._observe(await self._client.replace(self._path, {**lease, "spec": wanted}))
        return True

    async def _create(self) -> bool:
        moment = format_micro_time(self._wall_clock())
        lease = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": self._lease_duration,
                "acquireTime": moment,
                "renewTime": moment,
                "leaseTransitions": 0,
            },
        }
        self._observe(await self._client.create(self._collection, lease))
        return True

    def _observe(self, lease: dict[str, Any]) -> None:
        self._lease = lease
        self.holder = (lease.get("spec") or {}).get("holderIdentity") or ""
        version = (lease.get("metadata") or {}).get("resourceVersion") or ""
        if version != self._seen_version:
            self._seen_version, self._seen_at = version, self._clock()

    async def _release(self) -> None:
        """Hand the lease back, so that the next leader need not wait for it to expire."""
        held, self._trusted_until = self.is_leader(), float("-inf")
        if not held:
            return
        try:
            async with asyncio.timeout(self._retry_period):
                await self._give_back()
            log.info("lease %s given back", self._path)
        except (ApiError, ConnectionLost, ConfigError, TimeoutError) as error:
            log.warning("%s: not given back: %s", self._path, _words(error, self._retry_period))

    async def _give_back(self) -> None:
        if self._lease is not None:
            try:
                await self._empty(self._lease)
            except ApiError as error:
                if error.status != 409:
                    raise
            else:
                return
        # A renewal whose answer we did not get went through, or somebody else touched the object.
        lease = await self._client.get(self._path)
        if (lease.get("spec") or {}).get("holderIdentity") == self.identity:
            await self._empty(lease)

    async def _empty(self, lease: dict[str, Any]) -> None:
        moment = format_micro_time(self._wall_clock())
        spec = {
            **(lease.get("spec") or {}),
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "renewTime": moment,
            "acquireTime": moment,
        }
        await self._client.replace(self._path, {**lease, "spec": spec})


def _words(error: Exception, patience: float) -> str:
    """A timeout has no words of its own."""
    return str(error) or f"no answer in {patience:.3g} s"


def _seconds(spec: dict[str, Any], default: int) -> int:
    seconds = spec.get("leaseDurationSeconds")
    return seconds if isinstance(seconds, int) and seconds > 0 else default
