"""What each client has used of its quotas, and for how long its connection is throttled. Pure.

Clients that share a quota share its rate. Nothing is recorded for a client without one.
Source: Kafka's `ClientQuotaManager`, `ClientRequestQuotaManager`, `ControllerMutationQuotaManager`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from stratalog.clients.kafka.quotas.rates import QuotaTokens, QuotaWindow, WindowedRate
from stratalog.replication.metadata.client_quotas import (
    CONSUMER_BYTE_RATE,
    MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Quotas,
    quota_in_force,
    quotas_of,
)
from stratalog.replication.metadata.image import ClusterImage

PRODUCE, FETCH = 0, 1
PERCENT_PER_NS = 100 / 1_000_000_000
"""So many percent of a second's work of one thread are a nanosecond of work."""
INACTIVE_MS = 3_600_000
"""Time after which a rate that is no longer recorded is forgotten."""
PRUNED_FROM = 1_000
"""Number of rates from which those that are inactive are looked for."""


class ClientQuotas:
    """The quotas of one broker's clients. Any thread may use it."""

    def __init__(self, image: Callable[[], ClusterImage], version: Callable[[], int], window: QuotaWindow) -> None:
        """`version` grows with each change of the image."""
        self._image = image
        self._version = version
        self._window = window
        self._known_version = -1
        self._quotas: Quotas = {}
        self._lock = threading.Lock()
        self._rates: dict[tuple[str, str, str], WindowedRate] = {}
        self._tokens: dict[tuple[str, str], QuotaTokens] = {}

    @property
    def is_empty(self) -> bool:
        """No client has a quota."""
        version = self._version()
        if version != self._known_version:
            self._quotas, self._known_version = quotas_of(self._image()), version
        return not self._quotas

    def of_request(self, user: str, client_id: str, api_key: int, size_bytes: int) -> ClientUse | None:
        """What a request uses; None while no client has a quota."""
        return None if self.is_empty else ClientUse(self, user, client_id, api_key, size_bytes)

    def throttle_ms(self, key: str, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Record what was used; for how long the client is to be silent."""
        quota = quota_in_force(self._quotas, key, user, client_id)
        if quota is None:
            return 0
        shared = (quota.user, quota.client_id)
        with self._lock:
            if key == MUTATION_RATE:
                tokens = self._tokens.setdefault(shared, QuotaTokens(self._window))
                return tokens.throttle_ms(quota.bound, amount, now_ms)
            rate = self._rates.get((key, *shared))
            if rate is None:
                self._prune(now_ms)
                rate = self._rates[key, *shared] = WindowedRate(self._window)
            rate.record(amount, now_ms)
            throttle_ms = rate.throttle_ms(quota.bound, now_ms)
        # Time of threads is bounded by one sample, since a request that took long cannot be repeated in between.
        return min(throttle_ms, self._window.sample_ms) if key == REQUEST_PERCENTAGE else throttle_ms

    def _prune(self, now_ms: int) -> None:
        if len(self._rates) >= PRUNED_FROM:
            self._rates = {
                key: rate
                for key, rate in self._rates.items()
                if rate.samples and now_ms - rate.samples[-1].newest_ms < INACTIVE_MS
            }


class ClientUse:
    """What one request uses of its client's quotas.

    worked_ns   time of threads that worked on it
    mutations   partitions that it made or deleted
    """

    __slots__ = ("_api_key", "_client_id", "_quotas", "_size_bytes", "_user", "is_answered", "mutations", "worked_ns")

    def __init__(self, quotas: ClientQuotas, user: str, client_id: str, api_key: int, size_bytes: int) -> None:
        self._quotas = quotas
        self._user = user
        self._client_id = client_id
        self._api_key = api_key
        self._size_bytes = size_bytes
        self.worked_ns = 0
        self.mutations = 0
        self.is_answered = False

    def answered(self, answer_bytes: int, now_ms: int) -> int:
        """The answer has so many bytes: for how long its connection is throttled, in ms."""
        self.is_answered = True
        throttle_ms = [self._used(REQUEST_PERCENTAGE, self.worked_ns * PERCENT_PER_NS, now_ms)]
        if self._api_key == PRODUCE:
            throttle_ms.append(self._used(PRODUCER_BYTE_RATE, self._size_bytes, now_ms))
        elif self._api_key == FETCH:
            throttle_ms.append(self._used(CONSUMER_BYTE_RATE, answer_bytes, now_ms))
        if self.mutations:
            throttle_ms.append(self._used(MUTATION_RATE, self.mutations, now_ms))
        return max(throttle_ms)

    def worked(self, duration_ns: int, now_ms: int) -> None:
        """A thread has worked on it for so long; after the answer, that counts for the requests to come."""
        if self.is_answered:
            self._used(REQUEST_PERCENTAGE, duration_ns * PERCENT_PER_NS, now_ms)
        else:
            self.worked_ns += duration_ns

    def _used(self, key: str, amount: float, now_ms: int) -> int:
        return self._quotas.throttle_ms(key, self._user, self._client_id, amount, now_ms)
