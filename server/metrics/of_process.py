"""What the process says of itself: bytes of disks, processor time of threads, calls to stores.

I/O: /proc/self.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread

from stratalog.replication.metrics import COUNTER, GAUGE, Labels, Metric
from stratalog.storage.metering.calls import StoreCalls

_IO = Path("/proc/self/io")
READ, WRITTEN = "read_bytes", "write_bytes"


def disk_metrics() -> list[Metric]:
    """Bytes that the process caused to be read and written, by Kafka's names; nothing where /proc has no such file."""
    try:
        lines = _IO.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    found = {name: int(value) for name, _, value in (line.partition(":") for line in lines)}
    rows = ((READ, "read", "from"), (WRITTEN, "written", "to"))
    return [
        Metric(f"kafka_server_kafkaserver_linux_disk_{name}", GAUGE, f"Bytes {verb} {where} disks.", {(): found[name]})
        for name, verb, where in rows
        if name in found
    ]


def processor_ns(threads: Iterable[Thread]) -> int:
    """The processor time of threads; 0 where the system does not tell, and of one that has ended."""
    spent_ns = 0
    for thread in threads:
        with suppress(OSError, ValueError, IndexError):
            text = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text(encoding="ascii")
            spent_ns += int(text.split()[0])
    return spent_ns


def store_metrics(by_root: Mapping[str, StoreCalls]) -> list[Metric]:
    """Calls to stores by root (`metadata`, `own`, `domain:<name>`, `other`) and kind."""
    calls: dict[Labels, float] = {}
    failed: dict[Labels, float] = {}
    moved: dict[Labels, float] = {}
    for root, counted in by_root.items():
        of_root: Labels = (("root", root),)
        for kind, count in counted.made.items():
            calls[(*of_root, ("kind", kind))] = count
        failed[of_root] = counted.failed
        moved[(*of_root, ("direction", "read"))] = counted.read_bytes
        moved[(*of_root, ("direction", "written"))] = counted.written_bytes
    doc = "of this process to the metadata root, the broker's own and others"
    return [
        Metric("stratalog_store_calls_total", COUNTER, f"Calls {doc}, by kind.", calls),
        Metric("stratalog_store_failed_calls_total", COUNTER, f"Calls {doc} that ended with a fault.", failed),
        Metric("stratalog_store_bytes_total", COUNTER, f"Bytes that calls moved, {doc}.", moved),
    ]
