"""`make dashboards`: a real Prometheus server scrapes three brokers and evaluates each expression of the dashboards.

I/O: a cluster in memory-backed storage, a Prometheus process, HTTP. Prints a row for each expression; exit code 1 when
one of a panel gives no value, or an alert fires that has no reason to.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import kafka
from kafka.admin import NewTopic

from tests.lab.dashboards.expressions import CLUSTER, NAMESPACE, filled, published, without_bound
from tests.lab.real.harness.broker_processes import BrokerProcess
from tests.server.metrics.test_broker_page import three_free_ports
from tests.waiting import wait_until

BROKERS = 3
SCRAPE_S = 2
TRAFFIC_S = 30
MAY_FIRE = {"NoMessageForTooLong"}
"""Alerts that a cluster of half a minute fires: a partition without a new record in it."""


def prometheus_config(port: int) -> str:
    """Each broker a target, with the labels that Strimzi's PodMonitor adds."""
    lines = [f"global: {{scrape_interval: {SCRAPE_S}s}}", "scrape_configs:", "- job_name: kafka", "  static_configs:"]
    for number in range(BROKERS):
        pod = f"{CLUSTER}-kafka-{number}"
        labels = {
            "namespace": NAMESPACE, "kubernetes_pod_name": pod, "pod": pod, "container": "kafka",
            "strimzi_io_cluster": CLUSTER, "strimzi_io_name": f"{CLUSTER}-kafka", "strimzi_io_kind": "Kafka",
        }  # fmt: skip
        lines.append(f"  - {json.dumps({'targets': [f'localhost:{port + number}'], 'labels': labels})}")
    return "\n".join(lines) + "\n"


def evaluated(at: str, expression: str) -> list[dict[str, Any]]:
    """The series that Prometheus answers."""
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"{at}/api/v1/query?{query}", timeout=30) as answer:
        result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return result


def keep_busy(servers: str, is_over: threading.Event) -> None:
    """Produce, fetch and commit until it is over."""
    settings = {"auto_offset_reset": "earliest", "group_id": "readers"}
    with (
        kafka.KafkaProducer(bootstrap_servers=servers) as producer,
        kafka.KafkaConsumer("orders", bootstrap_servers=servers, **settings) as consumer,
    ):
        number = 0
        while not is_over.is_set():
            producer.send("orders", b"x" * 100, partition=number % 4)
            number += 1
            if consumer.poll(50):
                consumer.commit_async()


def report(at: str) -> int:
    """Print what each expression gave; how many are wrong."""
    wrong = 0
    for board, title, expression in published().all:
        is_alert = board == "alerts"
        found = evaluated(at, without_bound(filled(expression)) if is_alert else filled(expression))
        fires = is_alert and bool(evaluated(at, filled(expression)))
        is_right = bool(found) and (not fires or title in MAY_FIRE)
        wrong += not is_right
        first = found[0]["value"][1] if found else "-"
        print(f"{'ok' if is_right else 'WRONG':5} {board:22} {title:45} {len(found):4} series, first {first}")
    return wrong


def broker_processes(folder: Path, port: int) -> tuple[list[BrokerProcess], str]:
    """Three brokers, which are up, each with a metrics port from `port` on; and where clients connect."""
    listener = three_free_ports()
    shared = {
        "offsets.topic.num.partitions": 4,
        "group.initial.rebalance.delay.ms": 0,
        "stratalog.lag.interval.ms": 1_000,
    }
    brokers = []
    for number in range(BROKERS):
        own = {"listeners": f"PLAINTEXT://localhost:{listener + number}", "stratalog.metrics.port": port + number}
        brokers.append(BrokerProcess(folder, number + 1, {**shared, **own}, "thread"))
        brokers[-1].start()
    for broker in brokers:
        broker.await_started()
    return brokers, f"localhost:{listener}"


def main() -> int:
    """Run it all; the exit code."""
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        print("prometheus is not installed (Debian: apt-get install prometheus)", file=sys.stderr)
        return 1
    port, folder = three_free_ports(), Path(tempfile.mkdtemp(prefix="dashboards-", dir="/dev/shm"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        brokers, servers = broker_processes(folder, port)
        for broker in brokers:
            stack.callback(broker.kill)
        kafka.KafkaAdminClient(bootstrap_servers=servers).create_topics([NewTopic("orders", 4, 3)])
        is_over = threading.Event()
        traffic = threading.Thread(target=keep_busy, args=(servers, is_over))
        traffic.start()
        stack.callback(traffic.join)
        stack.callback(is_over.set)
        at = served(stack, prometheus, folder, port)
        wait_until(lambda: all(up(at)), "three scraped brokers", pause_s=0.5)
        time.sleep(TRAFFIC_S)
        wrong = report(at)
    print(f"{wrong} wrong")
    return int(bool(wrong))


def served(stack: ExitStack, prometheus: str, folder: Path, port: int) -> str:
    """Where a Prometheus server answers that scrapes the brokers; the stack ends it."""
    (folder / "prometheus.yml").write_text(prometheus_config(port), encoding="utf-8")
    listen = f"localhost:{three_free_ports()}"
    command = [
        prometheus, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
        f"--web.listen-address={listen}",
    ]  # fmt: skip
    log = stack.enter_context((folder / "prometheus.log").open("w", encoding="utf-8"))
    server = subprocess.Popen(command, stdout=log, stderr=log)
    stack.callback(server.wait, 30)
    stack.callback(server.terminate)
    return f"http://{listen}"


def up(at: str) -> list[bool]:
    """Whether each target answers; [False] while Prometheus does not."""
    try:
        found = evaluated(at, "up")
    except OSError:
        return [False]
    return [each["value"][1] == "1" for each in found] if len(found) == BROKERS else [False]


if __name__ == "__main__":
    sys.exit(main())
