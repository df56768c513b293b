"""A person is erased as users do it, by the commands: no file of topic, table and dead letters has them afterwards.

The cluster's metadata log has the request itself, which names the key: docs/start.md says so.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stratalog import Admin, Cluster, NewTopic, Producer
from tests.lab.real.harness.broker_processes import ENVIRONMENT, PROJECT
from tests.lab.real.typed_tables.stored_words import files_with

PERSON, OTHER = "zelda-4711", "link-0815"
BROKERS = (1, 2, 3)
SETTINGS = {"value.format": "json", "value.schema": "id BIGINT, customer STRING", "vacuum.retention.ms": 0}
"""Delays are as short as can be: those of a cluster and of a table are hours and days."""


def command(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"stratalog.jobs.{name}", *arguments],
        cwd=PROJECT, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def send(cluster: Cluster, first: int) -> None:
    """Of each person two records that fit and one that does not, in each partition."""
    with Producer(cluster) as producer:
        for partition in range(2):
            for number, key in enumerate([PERSON, OTHER] * 2, start=first):
                value = json.dumps({"id": number, "customer": key})
                producer.send("orders", value, key, partition=partition)
            for key in (PERSON, OTHER):
                producer.send("orders", f"{key} is no JSON", key, partition=partition)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_erased_person_is_in_no_file_of_topic_table_and_dead_letters(tmp_path: Path) -> None:
    table, letters = tmp_path / "lake/orders", tmp_path / "lake/orders__dlq"
    with Cluster.start(tmp_path / "cluster", fetcher="thread", config={"stratalog.upkeep.interval.ms": 100}) as cluster:
        Admin(cluster).create_topics([NewTopic("orders", 2, 3, {"file.delete.delay.ms": 500})])
        roots = [tmp_path / f"cluster/broker-{broker}" for broker in BROKERS]
        of_table = ["--root", cluster.root, "--topic", "orders", "--table", str(table)]
        for name, value in SETTINGS.items():
            of_table += ["--config", f"{name}={value}"]

        send(cluster, 0)
        assert command("typed_table", *of_table, "--available-now").returncode == 0
        send(cluster, 100)  # the query reads these only after the request
        assert [bool(files_with(place, PERSON)) for place in (*roots, table, letters)] == [True] * 5
        assert any("_delta_log/" in name for name in files_with(table, PERSON)), "the largest customer, in statistics"

        where = json.dumps({"key": {"equals": PERSON}})
        erased = command(
            "tools.delete_where", "--root", cluster.root, "--topic", "orders", "--where", where, "--wait-seconds", "60"
        )
        assert (erased.returncode, erased.stderr) == (0, "")
        assert erased.stdout.splitlines()[-1] == "Erased on all 6 replicas, and gone from storage."

        for _ in range(2):  # the second run is after the delay
            done = command("typed_table", *of_table, "--available-now")
            assert done.returncode == 0, done.stderr
        report = command("typed_table", *of_table, "--erasure", "1")
        assert (report.returncode, report.stdout.splitlines()[-1]) == (0, "Gone from table and dead letters."), report

        places = (*roots, table, letters)
        assert {str(place): files_with(place, PERSON, PERSON.encode().hex()) for place in places} == {
            str(place): [] for place in places
        }
        assert [bool(files_with(place, OTHER)) for place in places] == [True] * 5
