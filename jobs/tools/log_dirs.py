"""`kafka-log-dirs` for stratalog: what lies in the brokers' log directories, as one line of JSON.

I/O: reads the metadata log and every replica's table; the brokers need not run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from stratalog.clients.admin.admin import Admin
from stratalog.clients.admin.log_dirs import LogDirDescription
from stratalog.jobs.command.arguments import Parser, add_cluster_flags, client_properties, cluster_root, timeout_ms
from stratalog.jobs.command.terminal import DONE, UsageError, run

VERSION = 1
PURPOSE = "This tool helps to query log directory usage on the specified brokers."
EPILOG = """examples (ROOT is the metadata root that strata-cluster printed):
  {prog} --root ROOT --describe
  {prog} --root ROOT --describe --broker-list 1,3 --topic-list events,clicks

The last line is JSON: for each broker its log directory, which is its root, and for each replica there its size in
bytes on storage, and offsetLag, the records that it lacks below the high watermark. A replica whose table cannot be
read has -1 in both places.
exit code: 0 when the brokers were asked, 1 when not
"""


def parser() -> Parser:
    """All flags of kafka-log-dirs."""
    made = Parser("log_dirs", PURPOSE, "")
    made.epilog = EPILOG.format(prog=made.prog)
    add_cluster_flags(made)
    made.add_argument(
        "--describe", action="store_true", help="REQUIRED: Describe the specified log directories on the specified "
        "brokers.",
    )  # fmt: skip
    made.add_argument(
        "--topic-list", default="", metavar="TOPICS", help="The list of topics to be queried in the form "
        '"topic1,topic2,topic3". All topics will be queried if no topic list is specified.',
    )  # fmt: skip
    made.add_argument(
        "--broker-list", metavar="IDS", help='The list of brokers to be queried in the form "0,1,2". All brokers in '
        "the cluster will be queried if no broker list is specified.",
    )  # fmt: skip
    return made


def broker_ids(text: str | None, known: Sequence[int]) -> list[int]:
    """The brokers that `--broker-list` names, all without it. UsageError for what is none."""
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


def json_line(described: Mapping[int, LogDirDescription]) -> str:
    """The directories as Kafka's tool writes them."""
    brokers = [
        {
            "broker": broker_id,
            "logDirs": [
                {
                    "logDir": log_dir.path,
                    "error": None if log_dir.error is None else f"{log_dir.error.name}: {log_dir.error}",
                    "partitions": [
                        {
                            "partition": str(topic_partition),
                            "size": replica.size_bytes,
                            "offsetLag": replica.offset_lag,
                            "isFuture": replica.is_future,
                        }
                        for topic_partition, replica in sorted(log_dir.replicas.items())
                    ],
                }
            ],
        }
        for broker_id, log_dir in sorted(described.items())
    ]
    return json.dumps({"version": VERSION, "brokers": brokers}, separators=(",", ":"))


def log_dirs(arguments: Sequence[str] | None) -> int:
    """The tool without its terminal: raises what went wrong."""
    given = parser().parse(arguments)
    if not given.describe:
        raise UsageError('Missing required argument "[describe]"')
    with Admin(cluster_root(given), timeout_ms=timeout_ms(client_properties(given.command_config))) as admin:
        known = [broker.broker_id for broker in admin.describe_cluster().brokers]
        wanted = broker_ids(given.broker_list, known)
        topics = [name.strip() for name in given.topic_list.split(",") if name.strip()]
        print("Querying brokers for log directories information", flush=True)
        described = admin.describe_log_dirs(wanted, topics or None)
    print(f"Received log directory information from brokers {','.join(map(str, wanted))}")
    print(json_line(described))
    return DONE


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    return run(lambda: log_dirs(arguments))


if __name__ == "__main__":
    sys.exit(main())
