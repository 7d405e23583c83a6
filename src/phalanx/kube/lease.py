"""Leader election on a Lease (coordination.k8s.io/v1), with a deadline after which this process sends no writes."""

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
#: A candidate waits the retry period plus a random part of up to JITTER periods, so that candidates do not collide.
JITTER = 1.2
#: Timeout in seconds of the request for the new holder after the lease was lost.
_LOOK = 1.0


class LeadershipLost(Exception):  # noqa: N818 - an event, like BrokenPipe, and no mistake of the caller
    """Loss of the lease: it was not renewed in time, or another process holds it. The caller stops writing, and
    exits."""

    def __init__(self, message: str, because: str) -> None:
        super().__init__(message)
        #: The reason as a sentence for users.
        self.because = because


class LeaderElector:
    """Candidate for a lease: acquires it, renews it, and knows until when this process can safely write.

    Expiry of another holder's lease is measured on our own monotonic clock, from the last observed change of the
    record; clocks of other machines do not matter. Our own renewals count from before they
    were sent, and only for ``renew_deadline``, which is shorter than the ``lease_duration`` that
    other candidates wait: this gap prevents two leaders at one time. All times in seconds.

    Pass a client of its own: a renewal must not queue behind five thousand bindings.
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
        #: Last known holder of the lease; "" for none.
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
        #: The lease as last read or written; None if it has to be read.
        self._lease: dict[str, Any] | None = None
        self._seen_version = ""
        #: Text of the last logged failure, which is logged again only after another text or a success.
        self._logged = ""
        self._seen_at = float("-inf")

    def is_leader(self, margin: float = 0.0) -> bool:
        """Return whether a write that is sent now and arrives within ``margin`` seconds is still allowed.

        It only compares two numbers: call it from any thread, before every write.
        """
        return self._clock() + margin < self._trusted_until

    async def run(self) -> None:
        """Acquire the lease, set ``leading``, renew the lease. End with LeadershipLost, or release the lease on
        cancellation.

        Cancel it only after the last write is answered.
        """
        try:
            while not await self._attempt():
                await self._sleep(self._retry_period * (1 + JITTER * self._random()))
            log.info("leading: %s holds lease %s", self.identity, self._path)
            self.leading.set()
            await self._renew_forever()
        finally:
            self.leading.clear()
            await self._release()

    async def _renew_forever(self) -> None:
        while True:
            await self._sleep(min(self._retry_period, max(0.0, self._trusted_until - self._clock())))
            if self.is_leader():
                await self._attempt()
            if self.holder != self.identity:
                self._trusted_until = float("-inf")
                raise self._loss()
            if not self.is_leader():
                await self._read_holder()
                raise self._loss()

    async def _read_holder(self) -> None:
        """Read the holder of the lost lease within a short timeout; this process writes nothing any more."""
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
                f"{self._path}: it has no holder any more",
                "the lease was lost: another process has cleared its holder",
            )
        because = f"the lease was lost to another replica: {holder} holds it"
        return LeadershipLost(f"{self._path}: now held by {holder}", because)

    async def _attempt(self) -> bool:
        """Try once to acquire or renew the lease. Return whether this succeeded; failures are logged, not
        raised."""
        started = self._clock()
        timeout = self._renew_deadline / 2
        if self.is_leader():
            timeout = min(timeout, self._trusted_until - started)
        try:
            async with asyncio.timeout(timeout):
                success = await self._write(started)
        except (ApiError, ConnectionLost, ConfigError, TimeoutError) as error:
            self._lease = None  # its state is unknown, so the next attempt reads it
            if not (isinstance(error, ApiError) and error.status == 409):
                text = _error_text(error, timeout)
                log.log(logging.DEBUG if text == self._logged else logging.WARNING, "%s: %s", self._path, text)
                self._logged = text
            return False
        self._logged = ""
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
        renewed = {
            **spec,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._lease_duration,
            "acquireTime": spec.get("acquireTime") if ours and spec.get("acquireTime") else moment,
            "renewTime": moment,
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (0 if ours else 1),
        }
        # The resourceVersion in the metadata makes this a compare-and-swap: 409 is a lost race.
        self._observe(await self._client.replace(self._path, {**lease, "spec": renewed}))
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
        """Release the lease, so that the next leader does not wait for its expiry."""
        leads, self._trusted_until = self.is_leader(), float("-inf")
        if not leads:
            return
        try:
            async with asyncio.timeout(self._retry_period):
                await self._clear_holder()
            log.info("lease %s released", self._path)
        except (ApiError, ConnectionLost, ConfigError, TimeoutError) as error:
            log.warning("%s: not released: %s", self._path, _error_text(error, self._retry_period))

    async def _clear_holder(self) -> None:
        if self._lease is not None:
            try:
                await self._empty(self._lease)
            except ApiError as error:
                if error.status != 409:
                    raise
            else:
                return
        # A renewal with a lost response has succeeded, or another process has changed the object.
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


def _error_text(error: Exception, timeout: float) -> str:
    """Return the text of a request's error; for a timeout, which has no text, a text with the seconds."""
    return str(error) or f"no answer in {timeout:.3g} s"


def _seconds(spec: dict[str, Any], default: int) -> int:
    seconds = spec.get("leaseDurationSeconds")
    return seconds if isinstance(seconds, int) and seconds > 0 else default
