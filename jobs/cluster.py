"""An embedded cluster that stays up until Ctrl-C: brokers, controller and follower fetch in this one process.

I/O: directories below --path, threads, and a Spark session unless followers fetch in threads. Other processes
work with it through its metadata root (`--root` of the other tools).
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Iterable

from stratalog import Admin, Cluster, NewTopic
from stratalog.jobs.command.broker_flags import FETCHER, OVERRIDE, file_settings
from stratalog.jobs.command.flags import Flag
from stratalog.jobs.command.properties import key_values
from stratalog.jobs.command.terminal import DONE, FAILED, Stop, UsageError, complain, quiet_logging, stop_signals
from stratalog.jobs.command.tool import Command, settings_table
from stratalog.jobs.command.words import Words
from stratalog.jobs.console_port import CONSOLE_FLAGS, CONSOLE_RULES, check_console, console_beside
from stratalog.replication.config import BROKER_CONFIGS, CLUSTER_TOML, JSON_LINES, BrokerConfig
from stratalog.replication.controller.topics import NOT_GIVEN

PURPOSE = """This tool runs a stratalog cluster in one process: some brokers, each with a directory of its own, and
the controller. It stays up until Ctrl-C (or SIGTERM), then shuts down in order. Start it again on the same --path
and everything is still there; after a kill -9, too."""
EPILOG = """what lies below --path:
  metadata/       the metadata root: what --root of the other tools names
  broker-1/ ...   one directory a broker: a Delta table for each replica, <topic>-<partition>
  logs/           cluster.log and state-change.log

examples:
  {prog} --path data/cluster
  {prog} --path data/cluster --brokers 5 --rack 1=a,2=a,3=b,4=b,5=c --fetcher thread
  {prog} data/cluster --fetcher thread --topic events:3
  {prog} --path data/cluster --override replica.lag.time.max.ms=30000
  {prog} --path data/cluster --fetcher thread --console

--fetcher: how followers copy from leaders. spark: in Structured Streaming queries of a local Spark session (needs
Java); thread: in threads of this process; auto: by Spark unless the session has too few slots.

exit code: 0 after Ctrl-C or SIGTERM; 1 when the cluster could not start, or every broker stopped by itself

settings for --override and --config (name = default unit):
"""
DEFAULT_PATH = "data/cluster"
WATCH_S = 0.2


# fmt: off
FLAGS = {"": (
    Flag("path", "DIR", f"The cluster's folder ({DEFAULT_PATH}).", default=DEFAULT_PATH),
    Flag("brokers", "N", "How many brokers, with ids from 1 (3).", int, 3),
    FETCHER,
    Flag("config", "FILE", "Settings of the brokers, as TOML (*.toml) or Java properties; conf/cluster.toml if not "
         "given."),
    OVERRIDE,
    Flag("topic", "NAME[:N]", "Make this topic, with N partitions, if it is not there; may be repeated. Ours.",
         is_repeated=True, letter="t"),
    Flag("rack", "ID=RACK", "The rack of a broker: replicas are spread over racks. May be repeated, or several with "
         "commas.", is_repeated=True),
), **CONSOLE_FLAGS}
# fmt: on


def broker_settings(config_file: str | None, overrides: Iterable[str]) -> dict[str, object]:
    """The file's settings; overrides come first. UsageError, InvalidConfigError (in Kafka's words)."""
    found = {**file_settings(config_file or str(CLUSTER_TOML)), **key_values(overrides)}
    BrokerConfig.from_properties(found)
    return found


def racks(given: Iterable[str], brokers: int) -> dict[int, str]:
    """`1=a,2=b` as rack by broker id. UsageError for a broker that does not exist.

    >>> racks(["1=a,2=b", "3=a"], brokers=3)
    {1: 'a', 2: 'b', 3: 'a'}
    """
    found: dict[int, str] = {}
    for pair in ",".join(given).split(",") if given else ():
        name, _, rack = pair.partition("=")
        if not (name.strip().isdigit() and rack.strip()):
            raise UsageError(f"Invalid rack '{pair}': it must be in the format <broker id>=<rack>")
        if not 1 <= int(name) <= brokers:
            raise UsageError(f"Invalid rack '{pair}': the brokers are 1 to {brokers}")
        found[int(name)] = rack.strip()
    return found


def new_topics(given: Iterable[str], brokers: int) -> list[NewTopic]:
    """`--topic`: topics with a replica on each of up to three brokers. UsageError for a number that is none.

    >>> [(each.name, each.partitions) for each in new_topics(["a", "b:6"], brokers=3)]
    [('a', -1), ('b', 6)]
    """
    found = []
    for text in given:
        name, mark, count = text.partition(":")
        if mark and not (count.isdecimal() and int(count) > 0):
            raise UsageError(f"Invalid topic '{text}': it must be NAME or NAME:PARTITIONS")
        found.append(NewTopic(name, int(count) if mark else NOT_GIVEN, min(3, brokers)))
    return found


def make_topics(cluster: Cluster, topics: Iterable[NewTopic]) -> None:
    """Create those that are not there."""
    admin = Admin(cluster)
    known = set(admin.list_topics())
    admin.create_topics([each for each in topics if each.name not in known])


def greeting(cluster: Cluster) -> str:
    """The cluster, and how to use it from a second terminal and from Python."""
    root = shlex.quote(cluster.root)
    kafka = "".join(f"\nbootstrap.servers of listener {name}: {at}" for name, at in cluster.listeners.items())
    return f"""{cluster.describe()}{kafka}

In a second terminal:
  export STRATA_ROOT={root}
  strata topics create events -p 3 -r {min(3, len(cluster.brokers()))}
  strata produce events
  strata consume events --from-beginning
In Python:
  from stratalog import Consumer, Producer
  producer, consumer = Producer({cluster.root!r}), Consumer({cluster.root!r}, auto_offset_reset="earliest")

Running. Ctrl-C stops the cluster."""


def wait_for_the_end(cluster: Cluster, stop: Stop) -> int:
    """Wait for a signal, or until no broker runs; print it when a broker stops by itself. The exit code."""
    gone: set[int] = set()
    while not stop.is_asked:
        time.sleep(WATCH_S)
        for broker_id in cluster.brokers():
            broker = cluster.broker(broker_id)
            if broker_id not in gone and broker.stopped_by is not None:
                gone.add(broker_id)
                complain(f"ERROR broker {broker_id} stopped: {broker.stopped_by}")
        if len(gone) == len(cluster.brokers()):
            return FAILED
    return DONE


def start(given: argparse.Namespace) -> Cluster:
    """Start the cluster that the flags describe. Wrong flags raise before anything is made."""
    return Cluster.start(
        given.path,
        given.brokers,
        fetcher=given.fetcher,
        racks=racks(given.rack, given.brokers),
        config=broker_settings(given.config, given.override),
    )


def cluster(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    if given.brokers < 1:
        raise UsageError(f"A cluster has at least 1 broker, --brokers says {given.brokers}")
    topics = new_topics(given.topic, given.brokers)
    check_console(given)
    with stop_signals() as stop:
        running = start(given)
        stop.listen()
        as_json = running.config.stratalog_log_format == JSON_LINES
        quiet_logging(running.path / running.config.log_dir / "cluster.log", as_json=as_json)
        try:
            make_topics(running, topics)
            print(greeting(running), flush=True)
            with console_beside(given, running.root, running.config):
                return wait_for_the_end(running, stop)
        finally:
            complain("Stopping ...")
            running.stop()
            complain("Stopped.")


main = Command(
    "cluster", PURPOSE, EPILOG + settings_table(BROKER_CONFIGS), FLAGS, cluster, CONSOLE_RULES, Words(values=("path",))
)

if __name__ == "__main__":
    sys.exit(main())
