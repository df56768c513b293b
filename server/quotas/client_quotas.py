"""What each client has used of its quotas, and for how long its connection is throttled. Pure.

Clients that share a quota share its rate. Nothing is recorded for a client without one.
Source: Kafka's `ClientQuotaManager`, `ClientRequestQuotaManager`, `ControllerMutationQuotaManager`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from stratalog.replication.metadata.acls import Principal
from stratalog.replication.metadata.client_quotas import (
    CONSUMER_BYTE_RATE,
    MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaInForce,
    Quotas,
    quota_in_force,
    quotas_of,
)
from stratalog.replication.metadata.image import ClusterImage
from stratalog.server.quotas.rates import QuotaTokens, QuotaWindow, WindowedRate
from stratalog.storage.clock import Clock
from stratalog.storage.errors import StratalogError, ThrottlingQuotaExceededError
from stratalog.wire.api_keys import ApiKey

PERCENT_PER_NS = 100 / 1_000_000_000
"""Percent of one thread's time in a second that one nanosecond of work takes: 10,000,000 ns are 1 %."""
INACTIVE_MS = 3_600_000
"""Time after which a rate that is no longer recorded is forgotten."""
PRUNED_FROM = 1_000
"""Number of rates from which those that are inactive are looked for."""


class ClientQuotas:
    """The quotas of one broker's clients. Any thread may use it."""

    def __init__(
        self, image: Callable[[], ClusterImage], version: Callable[[], int], clock: Clock, window: QuotaWindow
    ) -> None:
        """`version` grows with each change of the image."""
        self._image = image
        self._version = version
        self._clock = clock
        self._window = window
        self._known_version = -1
        self._quotas: Quotas = {}
        self._lock = threading.Lock()
        self._rates: dict[tuple[str, str, str], WindowedRate] = {}
        self._tokens: dict[tuple[str, str], QuotaTokens] = {}
        self._pruned_from = PRUNED_FROM

    @property
    def is_empty(self) -> bool:
        """No client has a quota, as far as the metadata is within reach."""
        try:
            version = self._version()
        except StratalogError:
            return not self._quotas
        if version != self._known_version:
            self._quotas, self._known_version = quotas_of(self._image()), version
        return not self._quotas

    @property
    def size(self) -> int:
        """The number of rates and of buckets that are remembered."""
        return len(self._rates) + len(self._tokens)

    def of_request(
        self, principal: Principal, client_id: str | None, api_key: int, size_bytes: int
    ) -> ClientUse | None:
        """What a request uses; None while no client has a quota."""
        if self.is_empty:
            return None
        return ClientUse(self, (principal.name.partition(":")[2], client_id or ""), api_key, size_bytes)

    def used(self, key: str, client: tuple[str, str], amount: float) -> int:
        """Record what a client (user, client id) used; for how many ms it is to be silent."""
        quota = quota_in_force(self._quotas, key, *client)
        if quota is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            rate = self._rate(key, quota, now_ms)
            rate.record(amount, now_ms)
            throttle_ms = rate.throttle_ms(quota.bound, now_ms)
        # Time of threads is bounded by one sample, as in Kafka: the requests of a client do not all take long.
        return min(throttle_ms, self._window.sample_ms) if key == REQUEST_PERCENTAGE else throttle_ms

    def mutate(self, client: tuple[str, str], partition_count: int, *, is_strict: bool) -> int:
        """Take tokens for partitions that are made or deleted; for how many ms the client is to be silent.

        Strictly, nothing is taken while tokens are owed, and what is taken is not waited for yet: Kafka's
        `StrictControllerMutationQuota` and `PermissiveControllerMutationQuota`.
        """
        quota = quota_in_force(self._quotas, MUTATION_RATE, *client)
        if quota is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            shared = (quota.user, quota.client_id)
            if shared not in self._tokens:
                self._prune(now_ms)
            tokens = self._tokens.setdefault(shared, QuotaTokens(self._window))
            owed_ms = tokens.owed_ms(quota.bound, now_ms)
            if is_strict and owed_ms:
                return owed_ms
            tokens.take(partition_count, quota.bound, now_ms)
            return 0 if is_strict else tokens.owed_ms(quota.bound, now_ms)

    def _rate(self, key: str, quota: QuotaInForce, now_ms: int) -> WindowedRate:
        shared = (key, quota.user, quota.client_id)
        if shared not in self._rates:
            self._prune(now_ms)
            self._rates[shared] = WindowedRate(self._window)
        return self._rates[shared]

    def _prune(self, now_ms: int) -> None:
        """Clients choose their ids. So that a new one does not cost a look at all others, the next look is when there
        are twice as many."""
        if self.size < self._pruned_from:
            return
        self._rates = {
            key: rate
            for key, rate in self._rates.items()
            if rate.samples and now_ms - rate.samples[-1].newest_ms < INACTIVE_MS
        }
        self._tokens = {key: each for key, each in self._tokens.items() if now_ms - each.updated_ms < INACTIVE_MS}
        self._pruned_from = max(PRUNED_FROM, 2 * self.size)


class ClientUse:
    """What one request uses of its client's quotas."""

    __slots__ = ("_api_key", "_client", "_is_answered", "_owed_ms", "_quotas", "_size_bytes", "_worked_ns")

    def __init__(self, quotas: ClientQuotas, client: tuple[str, str], api_key: int, size_bytes: int) -> None:
        self._quotas = quotas
        self._client = client
        self._api_key = api_key
        self._size_bytes = size_bytes
        self._worked_ns = 0
        self._owed_ms = 0
        self._is_answered = False

    def answered(self, answer_bytes: int) -> int:
        """The answer has so many bytes: for how long its connection is throttled, in ms."""
        self._is_answered = True
        throttle_ms = [self._owed_ms, self._used(REQUEST_PERCENTAGE, self._worked_ns * PERCENT_PER_NS)]
        if self._api_key == ApiKey.PRODUCE:
            throttle_ms.append(self._used(PRODUCER_BYTE_RATE, self._size_bytes))
        elif self._api_key == ApiKey.FETCH:
            throttle_ms.append(self._used(CONSUMER_BYTE_RATE, answer_bytes))
        return max(throttle_ms)

    def worked(self, duration_ns: int) -> None:
        """A thread has worked on it for so long; after the answer, that counts for the requests to come."""
        if self._is_answered:
            self._used(REQUEST_PERCENTAGE, duration_ns * PERCENT_PER_NS)
        else:
            self._worked_ns += duration_ns

    def mutates(self, partition_count: int, *, is_strict: bool) -> None:
        """It is about to make or delete partitions. ThrottlingQuotaExceededError while others are owed, if strict."""
        owed_ms = self._quotas.mutate(self._client, partition_count, is_strict=is_strict)
        self._owed_ms = max(self._owed_ms, owed_ms)
        if is_strict and owed_ms:
            raise ThrottlingQuotaExceededError("The throttling quota has been exceeded.")

    def _used(self, key: str, amount: float) -> int:
        return self._quotas.used(key, self._client, amount)
