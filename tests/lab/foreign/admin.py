"""confluent-kafka's admin clients."""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import AdminClient

_KEPT: dict[str, AdminClient] = {}


def admin_client(settings: dict[str, Any]) -> AdminClient:
    """A client that lives as long as the process: the thread that sets a future's result holds its client meanwhile,
    and librdkafka aborts the process when that thread is the last one to do so. One for each settings: each has threads
    of its own, which go on to look for brokers after these have ended."""
    key = repr(sorted(settings.items()))
    if key not in _KEPT:
        _KEPT[key] = AdminClient(settings)
    return _KEPT[key]
