"""`kafka-log-dirs` for stratalog: the contents of the brokers' log directories, as one line of JSON.

I/O: reads the metadata log and every replica's table; the brokers need not run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence

from stratalog.jobs.command.arguments import CLUSTER
from stratalog.jobs.command.flags import Flag, Rule, switch
from stratalog.jobs.command.opened import open_cluster
from stratalog.jobs.command.terminal import DONE, UsageError
from stratalog.jobs.command.tool import Command
from stratalog.jobs.command.words import Words
from stratalog.jobs.text.storage_cost import DOMAIN, METADATA_ROOT, REQUESTS, RootCost, costs_of_roots
from stratalog.replication.price_lists import price_book
from stratalog.server.admin.log_dirs import LogDirDescription
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import InvalidConfigError

VERSION = 1
PURPOSE = "This tool helps to query log directory usage on the specified brokers."
EPILOG = """examples (for --root ROOT also --bootstrap-server HOST:PORT):
  {prog} --root ROOT --describe
  {prog} --root ROOT --describe --broker-list 1,3 --topic-list events,clicks
  {prog} --root ROOT --describe --cost --prices s3-express-us-east-1

The last line is JSON: for each broker its log directory, which is its root, and for each replica there its size in
bytes on storage, and offsetLag, the records that it lacks below the high watermark. A replica whose table cannot be
read has -1 in both places. The one table of a partition in a storage domain has its size with the leader, and 0 with
the other brokers; with --root the domain is named. A line above it names each broker that fetches in threads because
Spark cannot run its fetch queries, with the error. With --cost a line for each root, and "cost" in the JSON, say what
its bytes cost a month by a dated list of prices; a disk costs nothing.
exit code: 0 when the brokers were asked, 1 when not
"""


# fmt: off
FLAGS = {**CLUSTER, "": (
    switch("describe", "REQUIRED: Describe the specified log directories on the specified brokers."),
    Flag("topic-list", "TOPICS", 'The list of topics to be queried in the form "topic1,topic2,topic3". All topics will '
         "be queried if no topic list is specified.", default=""),
    Flag("broker-list", "IDS", 'The list of brokers to be queried in the form "0,1,2". All brokers in the cluster will '
         "be queried if no broker list is specified."),
    switch("cost", "What the bytes of each root cost a month. With --root every object is counted: a listing."),
    Flag("prices", "LISTS", "With --cost: lists of conf/prices.toml, or paths of files like it, with commas between. "
         "Without one for a root's kind its default there holds."),
)}
# fmt: on


def broker_ids(text: str | None, known: Sequence[int]) -> list[int]:
    """The brokers that `--broker-list` names, all without it. UsageError for an unknown one."""
    if not text:
        return list(known)
    names = [name.strip() for name in text.split(",") if name.strip()]
    wrong = [name for name in names if not name.isdecimal()]
    if wrong:
        raise UsageError(f"--broker-list names brokers by their ids, not '{wrong[0]}'")
    absent = [name for name in names if int(name) not in known]
    if absent:
        raise UsageError(
            f"ERROR: The given brokers do not exist from --broker-list: {','.join(absent)}. "
            f"Current existent brokers: {','.join(map(str, known))}"
        )
    return sorted({int(name) for name in names})


def json_line(described: Mapping[int, LogDirDescription], costs: Mapping[str, RootCost]) -> str:
    """The directories as Kafka's tool writes them, with `costs` by `costs_of_roots` where there are some."""
    brokers = [
        {
            "broker": broker_id,
            "logDirs": [
                {
                    "logDir": log_dir.path,
                    "error": None if log_dir.error is None else f"{log_dir.error.name}: {log_dir.error}",
                    "partitions": [
                        {
                            "partition": str(tp),
                            "size": r.size_bytes,
                            "offsetLag": r.offset_lag,
                            "isFuture": r.is_future,
                            **({"domain": r.domain} if r.domain else {}),
                        }
                        for tp, r in sorted(log_dir.replicas.items())
                    ],
                    **_cost(costs, f"broker {broker_id}"),
                }
            ],
        }
        for broker_id, log_dir in sorted(described.items())
    ]
    found = {"version": VERSION, "brokers": brokers}
    if METADATA_ROOT in costs:
        domains = [name for name in costs if name.startswith(DOMAIN)]
        found["domains"] = [{"domain": name.removeprefix(DOMAIN), **_cost(costs, name)} for name in domains]
        found["metadataRoot"] = _cost(costs, METADATA_ROOT)
    return json.dumps(found, separators=(",", ":"))


def _cost(costs: Mapping[str, RootCost], name: str) -> dict[str, object]:
    return {"cost": costs[name].to_json()} if name in costs else {}


def log_dirs(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    if given.prices and not given.cost:
        raise UsageError("--prices is for --cost")
    try:
        book = price_book((given.prices or "").replace(",", " ").split())
    except InvalidConfigError as reason:
        raise UsageError(str(reason)) from reason
    with open_cluster(given) as opened:
        known = [broker.broker_id for broker in opened.admin.describe_cluster().brokers]
        wanted = broker_ids(given.broker_list, known)
        topics = [name.strip() for name in given.topic_list.split(",") if name.strip()]
        print("Querying brokers for log directories information", flush=True)
        described = opened.admin.describe_log_dirs(wanted, topics or None)
        stored = opened.view if isinstance(opened.view, ClusterView) else None
        costs = costs_of_roots(stored, described, book) if given.cost else {}
    print(f"Received log directory information from brokers {','.join(map(str, wanted))}")
    for broker_id, log_dir in sorted(described.items()):
        if log_dir.fetches_in_threads:
            print(
                f"Broker {broker_id} fetches in threads of its process, since Spark cannot run its fetch queries: "
                f"{log_dir.fetches_in_threads}"
            )
    for name, cost in costs.items():
        print(cost.line(name))
    if costs and not all(cost.prices is not None and cost.prices.is_free for cost in costs.values()):
        print(REQUESTS)
    print(json_line(described, costs))
    return DONE


main = Command(
    "log-dirs", PURPOSE, EPILOG, FLAGS, log_dirs, Rule.required("describe"), Words(("describe",), "describe")
)
