"""simulated_idle: what a cluster costs while nobody uses it, by purpose; simulated_wake: how soon it serves again.

I/O: versitygw behind a relay that answers as late as a store elsewhere, and three broker processes of ours. Nothing is
asked by this process while the brokers are measured: their own counts are read at their metrics ports.
"""

from __future__ import annotations

import os
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from deltalake import DeltaTable

from stratalog import Admin, Producer, TopicPartition
from stratalog.replication.price_lists import price_book
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.metering.prices import PriceList
from tests.lab.bench.lab import BROKERS, Lab, Outcome, show
from tests.lab.bench.measures import Row, Spread
from tests.lab.bench.simulated.figures import Billed, rows_of_idle
from tests.lab.real.harness import broker_processes
from tests.lab.real.harness.broker_processes import LAUNCHER, ServerProcess
from tests.stores.cloud.simulated import endpoint_of, simulated_cloud
from tests.stores.servers import free_port, lacking, versity_server

IDLE_PARTITIONS = 100
SETTLE_S, MEASURED_S = 150, 120
PROFILE = "25ms"
TIMEOUT_S = 120
_REQUESTS, _LABELS = "stratalog_store_requests_total{", re.compile(r'(\w+)="([^"]*)"')


class BucketBroker(ServerProcess):
    """A broker process with a listener, whose root lies at a URL, mostly in a bucket."""

    def __init__(self, folder: Path, url: str, broker_id: int) -> None:
        self.metrics_port = free_port()
        settings = {
            "broker.id": broker_id,
            "log.dirs": f"{url}/broker-{broker_id}",
            "stratalog.metadata.root": f"{url}/metadata",
            "listeners": f"PLAINTEXT://localhost:{free_port()}",
            "stratalog.metrics.port": self.metrics_port,
        }
        overrides = [f"--override={name}={value}" for name, value in settings.items()]
        command = [*LAUNCHER, "--fetcher", "thread", *overrides]
        super().__init__(f"broker {broker_id}", command, folder / f"broker-{broker_id}.out")

    def billed(self) -> Billed:
        """The requests that this broker's process has made to object stores since its start, by purpose and kind."""
        with urllib.request.urlopen(f"http://localhost:{self.metrics_port}/metrics", timeout=TIMEOUT_S) as answer:
            text = answer.read().decode()
        found = Counter[tuple[str, str]]()
        for line in filter(lambda each: each.startswith(_REQUESTS), text.splitlines()):
            labels = dict(_LABELS.findall(line))
            found[labels["purpose"], labels["kind"]] += round(float(line.rpartition(" ")[2]))
        return found


@contextmanager
def _bucket(profile: str) -> Iterator[str]:
    """A folder in a bucket as far as this profile says, for this process and for brokers that are started."""
    with versity_server() as server:
        name, url = endpoint_of(server)
        with simulated_cloud(url, profile) as cloud:
            changed = {**server.environment, name: cloud.url}
            before = {key: os.environ.get(key) for key in changed}
            os.environ.update(changed)
            broker_processes.ENVIRONMENT.update(changed)
            try:
                yield server.new_root()
            finally:
                for key, value in before.items():
                    os.environ.pop(key)
                    broker_processes.ENVIRONMENT.pop(key)
                    if value is not None:
                        os.environ[key] = broker_processes.ENVIRONMENT[key] = value


def _prices() -> PriceList:
    if reason := lacking()["versity_server"]:
        raise RuntimeError(f"a simulated cloud needs a server: {reason}")
    prices = price_book(()).of_root("s3://bucket")
    assert prices is not None
    return prices


def simulated_idle(lab: Lab) -> Outcome:
    """The requests and dollars a month of three idle brokers, by purpose."""
    prices, rounds = _prices(), list[Billed]()
    for _ in range(lab.rounds):
        rounds.append(_idle_round(lab.folder / lab.fresh("idle")))
        rows = rows_of_idle("simulated_idle", rounds[-1:], MEASURED_S, prices)
        show("simulated_idle, simulated: " + ", ".join(f"{row.of} {row.ours.median:.3g}" for row in rows))
    note = (
        f"`simulated_idle`: three broker processes with listeners, {IDLE_PARTITIONS} partitions in one storage "
        f"domain, {SETTLE_S} s after their first records, over {MEASURED_S} s; dollars of thirty days by "
        f"`{prices.name}`, read on {prices.read_on.isoformat()}."
    )
    return Outcome(rows_of_idle("simulated_idle", rounds, MEASURED_S, prices), (note,))


def _idle_round(folder: Path) -> Billed:
    with _bucket(PROFILE) as url, ExitStack() as stack:
        brokers = [stack.enter_context(BucketBroker(folder, url, number)) for number in range(1, BROKERS + 1)]
        _first_records(f"{url}/metadata", IDLE_PARTITIONS)
        time.sleep(SETTLE_S)
        before = _sum_of(brokers)
        time.sleep(MEASURED_S)
        after = _sum_of(brokers)
        return Counter({key: count - before[key] for key, count in after.items() if count > before[key]})


def _sum_of(brokers: Sequence[BucketBroker]) -> Counter[tuple[str, str]]:
    found = Counter[tuple[str, str]]()
    for broker in brokers:
        found.update(broker.billed())
    return found


def _first_records(root: str, partitions: int, replicas: int = BROKERS) -> None:
    Admin(root).create_topic("idle", partitions, replicas, None, min_insync_replicas=min(replicas, 2))
    with Producer(root, acks="all") as producer:
        sent = [producer.send("idle", b"first", partition=number) for number in range(partitions)]
        for each in sent:
            each.result(TIMEOUT_S)


def simulated_wake(lab: Lab) -> Outcome:
    """From the start of a broker's process, after all were stopped, to its first acknowledgement. What was stored is
    read by deltalake in between."""
    _prices()
    took: dict[str, list[float]] = {"bucket": [], "local disks": []}
    for _ in range(lab.rounds):
        folder = lab.folder / lab.fresh("wake")
        with _bucket(PROFILE) as url:
            took["bucket"].append(_wake_ms(folder, url))
        took["local disks"].append(_wake_ms(folder, str(folder / "local")))
        show(f"simulated_wake: {', '.join(f'{place} {times[-1]:.0f} ms' for place, times in took.items())}")
    return Outcome(
        [
            Row("simulated_wake", place, "ms", True, Spread.of(times), None, more={"delay": PROFILE})
            for place, times in took.items()
        ],
        (f"`simulated_wake`: a broker process, {IDLE_PARTITIONS} partitions; a request to the bucket: {PROFILE}.",),
    )


def _wake_ms(folder: Path, url: str) -> float:
    root, named = f"{url}/metadata", TopicPartition("idle", 0)
    broker = BucketBroker(folder, url, 1)
    with broker:
        _first_records(root, IDLE_PARTITIONS, replicas=1)
        assert broker.stop() == 0
        table_root = ClusterView(root).replica_root(named, 1)
        rows = DeltaTable(f"{table_root}/{named}").to_pyarrow_table().num_rows
        assert rows == 1, f"{rows} rows are read while no broker runs"
        begun_s = time.perf_counter()
        broker.start()
        with Producer(root, acks="all") as producer:
            producer.send("idle", b"again", partition=0).result(TIMEOUT_S)
        return 1_000 * (time.perf_counter() - begun_s)


BENCHES: Mapping[str, Callable[[Lab], Outcome]] = {"simulated_idle": simulated_idle, "simulated_wake": simulated_wake}
