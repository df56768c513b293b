"""One broker in this process, until SIGTERM or Ctrl-C: `spark-submit jobs/broker.py …`, Kafka's `kafka-server-start`.

I/O: the broker's root, the metadata root, threads, and Spark unless it fetches in threads.
"""

from __future__ import annotations

import argparse
import sys
import time

from stratalog.jobs.command.broker_flags import FETCHER, OVERRIDE, file_settings
from stratalog.jobs.command.flags import Flag
from stratalog.jobs.command.properties import key_values
from stratalog.jobs.command.terminal import (
    DONE,
    FAILED,
    Stop,
    Terminated,
    UsageError,
    complain,
    error_text,
    quiet_logging,
    stop_signals,
)
from stratalog.jobs.command.tool import Command, identity_table, settings_table
from stratalog.jobs.console_port import CONSOLE_FLAGS, CONSOLE_RULES, check_console, console_beside
from stratalog.replication.config import BROKER_CONFIGS, JSON_LINES
from stratalog.server.endpoint.kafka_endpoint import KafkaEndpoint
from stratalog.server.process.broker_properties import IDENTITY, BrokerProperties
from stratalog.server.process.broker_server import BrokerServer
from stratalog.server.remote.heartbeats import RemoteBeats
from stratalog.server.remote.remote_cluster import RemotePeers

PURPOSE = """This tool runs one broker in a process of its own, with its own Spark application for follower fetch. It is
a candidate for controller, too. It stays up until SIGTERM or Ctrl-C, then hands over what it leads and ends with exit
code 0. The first broker of a cluster makes the metadata root; the others join there."""
EPILOG = """examples, three brokers of one machine (each in a terminal of its own):
  {prog} conf/broker.toml
  {prog} conf/broker.toml --override broker.id=2 --override log.dirs=data/brokers/broker-2
  {prog} conf/broker.toml --override broker.id=3 --override log.dirs=data/brokers/broker-3
by spark-submit, on any master:
  spark-submit jobs/broker.py --config conf/broker.toml --override broker.id=2 --override log.dirs=/mnt/disk-2/broker

below log.dirs: a Delta table for each replica, <topic>-<partition>; logs/server.log and logs/state-change.log

--fetcher: how this broker copies from leaders. spark: in Structured Streaming queries (needs Java); thread: in a thread
of this process; auto: by Spark where its executors have slots and reach
the roots.

exit code: 0 after SIGTERM, Ctrl-C or SIGHUP when all was handed over; else 1, with the reason

this broker's identity, for the file and --override; the first three are needed:
{identity}

other settings (name = default unit):
"""
WATCH_S = 0.2


# fmt: off
FLAGS = {"": (
    Flag("config_file", "FILE", "Settings, as TOML (*.toml) or Java properties, as Kafka's server.properties.",
         is_positional=True),
    Flag("config", "FILE", "The same as a flag."),
    OVERRIDE,
    FETCHER,
), **CONSOLE_FLAGS}
# fmt: on


def properties(given: argparse.Namespace) -> BrokerProperties:
    """The settings that the flags name. UsageError, InvalidConfigError (in Kafka's words)."""
    if given.config and given.config_file:
        raise UsageError(f"Two files are given: {given.config_file} and --config {given.config}")
    file = given.config or given.config_file
    return BrokerProperties.from_properties({**(file_settings(file) if file else {}), **key_values(given.override)})


def wait_for_the_end(server: BrokerServer, stop: Stop) -> int:
    """Wait for a signal, or until the broker fails, and print why. The exit code."""
    while not stop.is_asked:
        if (failure := server.failure) is not None:
            complain(error_text(failure))
            return FAILED
        time.sleep(WATCH_S)
    return DONE


def serve(identity: BrokerProperties, given: argparse.Namespace) -> int:
    """Run the broker to its end; the exit code."""
    code = FAILED
    config = identity.config
    with stop_signals() as stop, RemotePeers.of_broker(config) as peers, RemoteBeats(config) as beats:
        server = BrokerServer.start(
            identity,
            fetcher=given.fetcher,
            on_locked=lambda log_folder: quiet_logging(
                log_folder / "server.log", as_json=identity.config.stratalog_log_format == JSON_LINES
            ),
            peers=peers,
            endpoint=KafkaEndpoint,
            send_beat=beats.send,
        )
        peers.follow(lambda: server.broker.metadata.image)
        beats.follow(lambda: server.broker.metadata.image)
        stop.listen()
        try:
            print(f"{server.describe()}\n\nStarted. SIGTERM or Ctrl-C stops the broker.", flush=True)
            with console_beside(given, identity.metadata_root, identity.config):
                code = wait_for_the_end(server, stop)
        finally:
            complain("Stopping ...")
            has_handed_over = server.stop()
            complain("Stopped." if has_handed_over else "Stopped, without handing over.")
    return code if has_handed_over else FAILED


def broker(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    identity = properties(given)
    check_console(given)
    try:
        return serve(identity, given)
    except (KeyboardInterrupt, Terminated):  # a second signal during the start: all that ran has been stopped
        return DONE


_TABLES = EPILOG.replace("{identity}", identity_table(IDENTITY)) + settings_table(BROKER_CONFIGS)
main = Command("broker", PURPOSE, _TABLES, FLAGS, broker, CONSOLE_RULES)

if __name__ == "__main__":
    sys.exit(main())
