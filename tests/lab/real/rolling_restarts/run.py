"""Rolling restarts of three broker processes, in the chart's order and with its checks, under Java clients.

    python -m tests.lab.real.rolling_restarts.run --rolls 20

A roll restarts each broker once, the highest number first, as a StatefulSet does. Of each: what the chart's preStop
runs waits for the broker's own /safe-to-restart; SIGTERM; the process ends with exit code 0; a new one is started; its
/readyz answers 200, as the startup and readiness probes want; then the chart's minReadySeconds. At the end: no client
has seen an error, every acknowledged record was read, and no partition was without an acknowledgement, or a record at
the group, for longer than a second.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

from stratalog.clients.admin.admin import Admin
from stratalog.replication.config import BrokerConfig
from stratalog.server.admin.admin import NewTopic
from tests.lab.foreign.java.jvm import SMALL, Jvm, java_version
from tests.lab.foreign.served import HOST, SETTINGS, Form, Served
from tests.lab.real.harness.broker_processes import BROKERS, ENVIRONMENT, PROJECT
from tests.lab.real.harness.command import concluded
from tests.lab.real.harness.machine_watch import MachineWatch
from tests.waiting import wait_until

HERE = Path(__file__).parent
LOGGING = HERE.parent / "client_storm" / "log4j2.xml"
OPTIONS = ("-Xmx128m", *SMALL, f"-Dlog4j2.configurationFile={LOGGING}")
TOPIC, PARTITIONS = "rolled", 6
VALUES = yaml.safe_load((PROJECT / "deploy" / "helm" / "stratalog" / "values.yaml").read_text(encoding="utf-8"))
DEFAULTS = {each: getattr(BrokerConfig(), each.replace(".", "_")) for each in SETTINGS}
"""The chart leaves these as they are, where other tests are in a hurry."""
HOOK = PROJECT / "deploy" / "image" / "await_safe_to_restart.py"
PAUSE_MS_MAX = 1_000
READY_S, PROBE_S, ANSWER_S, END_S = 60, 0.1, 5, 90


@dataclass(frozen=True, slots=True)
class Restart:
    """How long each step of one restart took."""

    broker: int
    safe_s: float
    stop_s: float
    ready_s: float
    exit_code: int


@dataclass(frozen=True, slots=True)
class RollingRestarts:
    """What a run found; pauses are the longest of any partition."""

    rolls: int
    restarts: int
    records_per_s: int
    acknowledged: int
    errors: dict[str, int]
    unread: int
    read_twice: int
    latency_ms_max: int
    acknowledgement_pause_ms_max: int
    poll_pause_ms_max: int
    unclean_exits: int
    stop_s_max: float
    ready_s_max: float
    stalled_s: float

    @property
    def is_clean(self) -> bool:
        pauses = (self.acknowledgement_pause_ms_max, self.poll_pause_ms_max)
        return not (self.errors or self.unread or self.unclean_exits) and max(pauses) <= PAUSE_MS_MAX


def probed(served: Served, broker_id: int, path: str) -> bool:
    """Whether a broker answers 200, as the kubelet asks it."""
    with suppress(OSError), urllib.request.urlopen(_url(served, broker_id, path), timeout=ANSWER_S) as answer:
        return bool(answer.status == 200)
    return False


def _url(served: Served, broker_id: int, path: str) -> str:
    return f"http://{HOST}:{served.metrics_port(broker_id)}{path}"


def restart(served: Served, broker_id: int) -> Restart:
    """One broker, as the chart's pod is replaced."""
    begun_s = time.monotonic()
    seconds = VALUES["safeToRestartSeconds"]
    hook = [sys.executable, str(HOOK), "--url", _url(served, broker_id, "/safe-to-restart"), "--seconds", str(seconds)]
    said = subprocess.run(hook, capture_output=True, text=True, timeout=seconds + ANSWER_S + 5, check=True).stdout
    safe_s = time.monotonic()
    print(f"{datetime.now(UTC):%H:%M:%S.%f} broker {broker_id}: {said.strip()}", flush=True)
    exit_code = served.process(broker_id).stop()
    stopped_s = time.monotonic()
    served.process(broker_id).start()
    wait_until(lambda: probed(served, broker_id, "/readyz"), f"broker {broker_id} to be ready", READY_S)
    ready_s = time.monotonic()
    print(
        f"{datetime.now(UTC):%H:%M:%S.%f} broker {broker_id}: safe after {safe_s - begun_s:.1f} s, stopped in "
        f"{stopped_s - safe_s:.1f} s with {exit_code}, ready after {ready_s - stopped_s:.1f} s",
        flush=True,
    )
    time.sleep(VALUES["minReadySeconds"])
    return Restart(broker_id, safe_s - begun_s, stopped_s - safe_s, ready_s - stopped_s, exit_code)


def noted(errors: str) -> str:
    """The client's own lines: pauses, and errors that an application would see."""
    return "\n".join(line for line in errors.splitlines() if re.match(r"\d\d:\d\d:\d\d", line))


def run(rolls: int, rate: int, protocol: str, keep: Path | None = None) -> RollingRestarts:
    """A whole run."""
    java_version()
    jvm = Jvm(HERE.parent / "rolling_restarts", OPTIONS)
    settings: dict[str, object] = {**DEFAULTS, **VALUES["config"]}
    with Served(Form.BROKERS, settings, keep=keep, metrics=True) as served, MachineWatch() as machine:
        Admin(served.metadata_root).create_topics([NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": 2})])
        given = (served.bootstrap, TOPIC, str(PARTITIONS), str(rate), protocol, "2")
        with (served.folder / "client.err").open("wb") as errors:
            client = subprocess.Popen(
                jvm.command("RollingClient", *given), cwd=PROJECT, env=ENVIRONMENT, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
            try:
                assert client.stdout is not None
                assert client.stdout.readline().strip() == b"ready", (served.folder / "client.err").read_text()
                begun_ms = time.monotonic() * 1_000
                done = [restart(served, each) for _ in range(rolls) for each in sorted(BROKERS, reverse=True)]
                written, _ = client.communicate(b"end\n", END_S)
            finally:
                client.kill()
                client.wait()
                jvm.close()
                served.keep_logs()
                print(noted((served.folder / "client.err").read_text(encoding="utf-8")), flush=True)
        found = json.loads(written.splitlines()[-1])
        return RollingRestarts(
            rolls=rolls,
            restarts=len(done),
            records_per_s=rate,
            unclean_exits=sum(each.exit_code != 0 for each in done),
            stop_s_max=round(max(each.stop_s for each in done), 2),
            ready_s_max=round(max(each.ready_s for each in done), 2),
            stalled_s=machine.stalled_s(begun_ms),
            **found,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rolls", type=int, default=20)
    parser.add_argument("--rate", type=int, default=1_000, help="records a second")
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="consumer", help="the group's")
    parser.add_argument("--keep", type=Path, help="copy the brokers' logs here")
    given = parser.parse_args(arguments)
    result = run(given.rolls, given.rate, given.protocol, given.keep)
    return concluded(result)


if __name__ == "__main__":
    sys.exit(main())
