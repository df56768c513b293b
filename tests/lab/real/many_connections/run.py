"""A thousand connections with a Fetch waiting, beside producers: memory of the broker's process, latency of produce.

    python -m tests.lab.real.many_connections.run --minutes 10

One process of `jobs.cluster` with one broker. Fifty producers send ten records a second each, acks=all, open loop.
They send without the waiting connections, with them (for --minutes), with them and a consumer that reads 1 GiB from the
beginning, and without them again: in the first minutes of a broker its tables need no upkeep yet. What counts is the
median of the minutes. The thousand fetch from the end of partitions that nobody writes to, one partition each in turns,
and wait 500 ms as consumers do by default.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import selectors
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from struct import pack
from typing import Any

import numpy as np

from stratalog.clients.admin.admin import Admin
from stratalog.server.admin.admin import NewTopic
from stratalog.storage.records import NewRecordBatch, payload_table
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.batches.record_batches import encode_batch
from stratalog.wire.messages.frames import decode_response, encode_request
from stratalog.wire.messages.schema import request_type
from tests.lab.bench.measures import quantile
from tests.lab.real.fuzz.bad_frames import SETTINGS
from tests.lab.real.fuzz.clients import OneConnection
from tests.lab.real.harness.children import Child, module
from tests.lab.real.harness.cluster_process import Address, ClusterProcess
from tests.lab.real.harness.command import concluded, options, work_folder

CONNECTIONS, PRODUCERS, RATE = 1_000, 50, 10.0
HOT, QUIET, COLD = "hot", "quiet", "cold"
HOT_PARTITIONS, QUIET_PARTITIONS, COLD_PARTITIONS = 10, 100, 4
WAIT_MS = 500
RECORD_BYTES, COLD_RECORD_BYTES, COLD_BATCH = 100, 1_000, 900
FETCH_BYTES = 1 << 20
MEMORY_KIB_MAX = 2 << 10
"""Growth of the memory that is allowed a minute, after the second."""
WARM_S, MINUTE_S, COLD_S_MAX = 10.0, 60.0, 300.0
ALONE_BEFORE, ALONE_AFTER = 2, 3
"""Minutes without the connections."""


@dataclass(slots=True)
class Latency:
    """Of produce requests in one window, from when they were due. `broker_cores`: CPU time of its process a second."""

    count: int
    p50_ms: float
    p99_ms: float
    errors: int
    broker_cores: float

    @classmethod
    def of(cls, producers: Producers, broker_cores: float) -> Latency:
        ordered = sorted(producers.latencies_ms)
        p50_ms, p99_ms = (round(quantile(ordered, share), 1) for share in (0.5, 0.99))
        return cls(len(ordered), p50_ms, p99_ms, producers.errors, round(broker_cores, 2))


@dataclass(slots=True)
class ManyConnections:
    """What a run measured. `memory_kib`: at each minute of the window with the connections."""

    alone: Latency
    beside: Latency
    beside_cold: Latency | None
    cold_mib_s: float = 0.0
    fetches: int = 0
    memory_kib: list[int] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        is_level = growth_a_minute(self.memory_kib[2:]) <= MEMORY_KIB_MAX
        is_quick = self.beside.p99_ms <= 1.5 * self.alone.p99_ms
        cold = self.beside_cold
        return is_level and is_quick and (cold is None or cold.p99_ms <= 3 * self.alone.p99_ms)


def growth_a_minute(samples: Sequence[int]) -> float:
    """The slope of the line through samples of each minute that fits best: one sample alone says little, because
    the interpreter and Arrow return memory in larger pieces.

    >>> growth_a_minute([400, 410, 404, 414, 408])
    2.0
    """
    if len(samples) < 2:
        return 0.0
    return round(float(np.polyfit(range(len(samples)), samples, 1)[0]), 1)


class Producers:
    """Open loop: each request has its time, whether or not the last one was answered."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self.latencies_ms: list[float] = []
        self.errors = 0

    async def run(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        await asyncio.gather(*(self._one(which, begun_s, seconds) for which in range(PRODUCERS)))

    async def _one(self, which: int, begun_s: float, seconds: float) -> None:
        reader, writer = await asyncio.open_connection(*self._address)
        loop = asyncio.get_running_loop()
        records = encode_batch(NewRecordBatch(payload_table([(1_700_000_000_000, b"k", bytes(RECORD_BYTES), None)])))
        partition = {"index": which % HOT_PARTITIONS, "records": records}
        topic = {"name": HOT, "partition_data": [partition]}
        frame = framed(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 30_000, "topic_data": [topic]})
        dues: list[float] = []
        count = int(seconds * RATE)
        answers = asyncio.create_task(self._answers(reader, dues, count))
        try:
            for number in range(count):
                due_s = begun_s + (number + which / PRODUCERS) / RATE
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                dues.append(due_s)
                writer.write(frame)
            await answers
        finally:
            answers.cancel()
            writer.close()

    async def _answers(self, reader: asyncio.StreamReader, dues: list[float], count: int) -> None:
        loop = asyncio.get_running_loop()
        for number in range(count):
            answer = decode_response(await read_frame(reader), ApiKey.PRODUCE, 9)[1]
            self.latencies_ms.append((loop.time() - dues[number]) * 1_000)
            self.errors += answer.responses[0].partition_responses[0].error_code != 0


class Holder:
    """Connections with a Fetch each that waits, over and over. One epoll and no event loop: it has to cost little
    beside the broker, whose machine it shares."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._selector = selectors.EpollSelector()
        self.fetched = 0
        self.broken = 0

    def connect(self, connections: int) -> None:
        """Begin the fetches of so many connections, spread over one waiting time."""
        for which in range(connections):
            own = socket.create_connection(self._address)
            own.setblocking(False)
            frame = framed(ApiKey.FETCH, 11, fetch_values(QUIET, which % QUIET_PARTITIONS, 0, min_bytes=1))
            self._selector.register(own, selectors.EVENT_READ, (own, frame, bytearray()))
            own.send(frame)
            self.serve(WAIT_MS / 1_000 / connections)

    def serve(self, seconds: float) -> bool:
        """Fetch again what is answered, for so long, or until there is a line on the standard input: then True."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            for key, _ in self._selector.select(left_s):
                if key.data is None:
                    return True
                self._fetch_again(*key.data)
        return False

    def _fetch_again(self, own: socket.socket, frame: bytes, read: bytearray) -> None:
        try:
            received = own.recv(1 << 16)
        except ConnectionError:
            received = b""
        if not received:
            self.broken += 1
            self._selector.unregister(own)
            return
        read += received
        if len(read) >= 4 and len(read) == 4 + int.from_bytes(read[:4], "big"):
            read.clear()
            self.fetched += 1
            own.send(frame)

    def until_line(self) -> None:
        """Serve until a line comes on the standard input."""
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, None)
        while not self.serve(60):
            pass


def hold(address: Address, connections: int) -> None:
    """Hold waiting fetches until a line comes; prints the number of fetches."""
    holder = Holder(address)
    holder.connect(connections)
    holder.serve(1)
    holder.fetched = 0
    print("ready", flush=True)
    holder.until_line()
    print(json.dumps({"fetches": holder.fetched, "broken": holder.broken}), flush=True)


def read_cold(address: Address) -> None:
    """Read the whole cold topic once; prints MiB/s."""
    client, begun_s, size = OneConnection(address), time.monotonic(), 0
    for partition in range(COLD_PARTITIONS):
        offset = 0
        while True:
            values = fetch_values(COLD, partition, offset, min_bytes=0, max_bytes=16 * FETCH_BYTES)
            (found,) = client.ask(ApiKey.FETCH, 11, values).responses[0].partitions
            if not found.records:
                if offset >= found.high_watermark:
                    break
                continue
            size += len(found.records)
            offset = end_of(found.records)
    print(json.dumps({"mib_s": size / (1 << 20) / (time.monotonic() - begun_s), "mib": size >> 20}), flush=True)


def end_of(records: bytes) -> int:
    """The offset behind the last whole batch."""
    at, end = 0, 0
    while at + 61 <= len(records):
        size = 12 + int.from_bytes(records[at + 8 : at + 12], "big")
        if at + size > len(records):
            break
        end = int.from_bytes(records[at : at + 8], "big") + int.from_bytes(records[at + 23 : at + 27], "big") + 1
        at += size
    return end


def fetch_values(
    topic: str, partition: int, offset: int, *, min_bytes: int, max_bytes: int = FETCH_BYTES
) -> dict[str, Any]:
    wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes}
    return {
        "max_wait": WAIT_MS,
        "min_bytes": min_bytes,
        "max_bytes": 50 << 20,
        "topics": [{"topic": topic, "partitions": [wanted]}],
    }


def framed(key: int, version: int, values: dict[str, Any]) -> bytes:
    frame = encode_request(1, "many", values, request_type(key, version))
    return pack(">i", len(frame)) + frame


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


def fill(address: Address, mib: int) -> None:
    """Write so many MiB to the cold topic."""
    client, value = OneConnection(address), os.urandom(COLD_RECORD_BYTES)
    batch = encode_batch(NewRecordBatch(payload_table([(1_700_000_000_000, None, value, None)] * COLD_BATCH)))
    for number in range(-(-(mib << 20) // (COLD_BATCH * COLD_RECORD_BYTES))):
        partition = {"index": number % COLD_PARTITIONS, "records": batch}
        topic = {"name": COLD, "partition_data": [partition]}
        answer = client.ask(ApiKey.PRODUCE, 9, {"acks": 1, "timeout": 30_000, "topic_data": [topic]})
        assert not answer.responses[0].partition_responses[0].error_code
    client.close()


def part(role: str, address: Address) -> Child:
    """This module in another process."""
    return Child(module("tests.lab.real.many_connections.run", "--part", role, "--at", *address))


class CpuWatch:
    """The CPU time that a process takes, in cores."""

    def __init__(self, pid: int) -> None:
        self._stat = Path(f"/proc/{pid}/stat")
        self._begun = time.monotonic(), self._cpu_s()

    def _cpu_s(self) -> float:
        fields = self._stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def cores(self) -> float:
        begun_s, begun_cpu_s = self._begun
        return (self._cpu_s() - begun_cpu_s) / (time.monotonic() - begun_s)


def window(cluster: ClusterProcess, address: Address, seconds: float) -> Latency:
    """Produce for so long."""
    producers, cpu = Producers(address), CpuWatch(cluster.pid)
    asyncio.run(producers.run(seconds))
    return Latency.of(producers, cpu.cores)


def run(folder: Path, minutes: int, cold_mib: int) -> ManyConnections:
    """A whole run below `folder`."""
    one = {"offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1}
    with ClusterProcess(folder, 1, {**SETTINGS, **one}) as cluster:
        counts = {HOT: HOT_PARTITIONS, QUIET: QUIET_PARTITIONS, COLD: COLD_PARTITIONS}
        kept = {"retention.ms": -1}  # the records' timestamps are years old
        Admin(cluster.root).create_topics([NewTopic(topic, count, 1, kept) for topic, count in counts.items()])
        address = cluster.addresses()[1]
        fill(address, cold_mib)
        window(cluster, address, WARM_S)
        alone = minutes_of(cluster, address, ALONE_BEFORE)
        memory: list[int] = []
        with part("hold", address) as holding:
            holding.await_ready()
            latencies = minutes_of(cluster, address, minutes, memory)
            beside_cold, speed = None, 0.0
            if cold_mib:
                beside_cold, speed = _beside_cold(cluster, address, cold_mib)
            said = holding.finish()
        assert said["broken"] == 0, f"{said['broken']} connections ended"
        alone += minutes_of(cluster, address, ALONE_AFTER)
        print(f"alone: {alone}\nbeside: {latencies}", flush=True)
        return ManyConnections(median_of(alone), median_of(latencies), beside_cold, speed, said["fetches"], memory)


def minutes_of(
    cluster: ClusterProcess, address: Address, minutes: int, memory_kib: list[int] | None = None
) -> list[Latency]:
    """Produce for so many minutes; `memory_kib` gets the memory of the broker's process before each and at the end."""
    samples = [] if memory_kib is None else memory_kib
    found = []
    for _ in range(minutes):
        samples.append(cluster.memory_kib)
        found.append(window(cluster, address, MINUTE_S))
    samples.append(cluster.memory_kib)
    return found


def median_of(minutes: Sequence[Latency]) -> Latency:
    """The minute whose p99 is the median."""
    return sorted(minutes, key=lambda each: each.p99_ms)[len(minutes) // 2]


def _beside_cold(cluster: ClusterProcess, address: Address, cold_mib: int) -> tuple[Latency, float]:
    """Produce while a consumer reads everything, and for no longer."""
    producers, cpu = Producers(address), CpuWatch(cluster.pid)
    with part("cold", address) as reading:

        async def until_read() -> None:
            working = asyncio.create_task(producers.run(COLD_S_MAX))
            await asyncio.to_thread(reading.process.wait)
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working

        asyncio.run(until_read())
        cores = cpu.cores
        said = reading.finish()
    assert said["mib"] >= cold_mib, f"{said['mib']} MiB were read of {cold_mib}"
    return Latency.of(producers, cores), round(said["mib_s"], 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when all is within the limits."""
    parser = options(__doc__)
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--cold-mib", type=int, default=1_024, help="size of the cold topic; 0: no cold consumer")
    parser.add_argument("--part", choices=("hold", "cold"), help=argparse.SUPPRESS)
    parser.add_argument("--at", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if given.part == "hold":
        hold((given.at[0], int(given.at[1])), CONNECTIONS)
        return 0
    if given.part:
        read_cold((given.at[0], int(given.at[1])))
        return 0
    with work_folder(given.folder, "many") as folder:
        return concluded(run(folder, given.minutes, given.cold_mib))


if __name__ == "__main__":
    sys.exit(main())
