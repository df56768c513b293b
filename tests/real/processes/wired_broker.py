"""`python -m stratalog.jobs.broker` with a wire: other processes can call this broker, and its coordinators the
others."""

from __future__ import annotations

import sys

from stratalog.jobs import broker
from stratalog.jobs.command.terminal import quiet_logging, stop_signals
from stratalog.replication.process.broker_server import BrokerServer
from tests.real.processes.broker_processes import STARTED
from tests.real.processes.wire import WiredPeers, WireServer


def main(arguments: list[str]) -> int:
    """Run a broker until SIGTERM; the exit code."""
    given = broker.main.parse(arguments)
    properties = broker.properties(given)
    server = BrokerServer.start(
        properties,
        fetcher=given.fetcher,
        on_locked=lambda log_folder: quiet_logging(log_folder / "server.log"),
        peers=WiredPeers(properties.metadata_root),
    )
    WireServer(server.broker, properties.metadata_root)
    with stop_signals() as stop:
        print(STARTED, flush=True)
        code = broker.wait_for_the_end(server, stop)
    server.stop()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
