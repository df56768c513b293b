"""spark_write, spark_read, spark_stream, spark_trigger and delta_append: Spark's source and sink beside the connector.
spark_view and spark_plain: the committed view, and a session without settings, beside the source in our session.

I/O: both clusters, and one Spark application that uses them from outside (`spark_app`). The rows `…_tuned` are the
connector with options that its user would set, so that the comparison is not with its defaults alone: readers wait for
10 ms at the brokers, not 500; writers collect larger batches, without compression and with it, since our sink
compresses its files. `acks` is `all` on both sides. Reads and streams are timed from where Spark has the frame, the
view and the read beside it from before `load`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from deltalake import DeltaTable

from stratalog import Cluster, Producer
from tests.lab.bench.benches.spark_app import PLAIN, REGISTERED, VALUE_BYTES
from tests.lab.bench.lab import PARTITIONS, Lab, Outcome, show
from tests.lab.bench.measures import Row, Spread
from tests.lab.bench.payload import Payload

ROWS = 2_000_000
WARM_ROUNDS, WARM_ROWS = 2, 1_000_000
COMMITS = 1_000
TUNED = {"kafka.fetch.max.wait.ms": "10"}
TUNED_WRITE = {"kafka.batch.size": "262144", "kafka.linger.ms": "20"}
COMPRESSED = {"kafka.compression.type": "lz4"}
BATCHES, BATCHES_UNTUNED, BATCHES_WARM = 12, 4, 6
"""The numbers of micro-batches. There is one a second, since the rate source makes rows once a second."""
VIEW_PARTITIONS = 500
READY_WAIT_S = 120
APPLICATION = "tests.lab.bench.benches.spark_app"

Answer = dict[str, Any]


class SparkApp:
    """The application's process; one command at a time."""

    def __init__(self, lab: Lab, cluster: Cluster, *kind: str, application: str = APPLICATION) -> None:
        self._options = {
            "ours": {"stratalog.root": cluster.root},
            "peer": {"kafka.bootstrap.servers": lab.peer.bootstrap},
        }
        folder = lab.folder / lab.fresh("application")
        folder.mkdir()
        self._errors = (folder / "stderr").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", application, str(folder), *kind],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
        )  # fmt: skip
        self._answer()

    def ask(self, do: str, side: str = "", options: dict[str, str] | None = None, **arguments: object) -> Answer:
        """The answer to a command. RuntimeError with the end of the application's errors when it failed."""
        sided = {"side": side, "options": self._options[side] | (options or {})} if side else {}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **sided, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Answer:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            end = Path(self._errors.name).read_text(encoding="utf-8", errors="replace")[-3000:]
            raise RuntimeError(f"the Spark application ended with {self._process.returncode}:\n{end}")
        answer: Answer = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.ask("stop")
        else:
            self._process.kill()
        self._process.wait()
        self._errors.close()


def spark(lab: Lab) -> Outcome:
    """Every Spark bench, on one cluster a side."""
    with lab.cluster() as cluster, SparkApp(lab, cluster) as app:
        rows = _bulk(lab, cluster, app)
        rows += _many_commits(lab, cluster, app)
        rows += _triggers(lab, cluster, app)
        rows += _views(lab, cluster, app)
        with SparkApp(lab, cluster, PLAIN) as plain, SparkApp(lab, cluster, REGISTERED) as registered:
            rows += _plain_session(lab, cluster, {PLAIN: plain, REGISTERED: registered, "ours": app})
    lab.peer.delete_topics("spark-.*")
    return Outcome(rows)


def _bulk(lab: Lab, cluster: Cluster, app: SparkApp) -> list[Row]:
    """Write, read and stream the same rows; the first rounds only warm both sides up."""
    seconds: dict[str, list[float]] = {}
    for number in range(WARM_ROUNDS + lab.rounds):
        rows = ROWS if number >= WARM_ROUNDS else WARM_ROWS
        topics = {"ours": lab.topic(cluster, "spark"), "peer": lab.peer_topic("spark")}
        taken = {f"{side} write": app.ask("write", side, topic=topic, rows=rows) for side, topic in topics.items()}
        for what in ("read", "stream"):
            taken |= {f"{side} {what}": app.ask(what, side, topic=topic) for side, topic in topics.items()}
        for what in ("read", "stream"):
            taken[f"tuned {what}"] = app.ask(what, "peer", TUNED, topic=topics["peer"])
        for what, options in (("plain", TUNED_WRITE), ("lz4", TUNED_WRITE | COMPRESSED)):
            taken[f"{what} write"] = app.ask("write", "peer", options, topic=lab.peer_topic("spark"), rows=rows)
        taken["delta write"] = app.ask("delta", rows=rows)
        _check(taken, rows)
        show(f"spark {number - WARM_ROUNDS + 1}: " + ", ".join(f"{name} {a['s']:.2f} s" for name, a in taken.items()))
        if number >= WARM_ROUNDS:
            for name, answer in taken.items():
                seconds.setdefault(name, []).append(answer["s"])
    write = _row("spark_write", seconds["ours write"], seconds["peer write"])
    tuned = [
        _row("spark_write_tuned", seconds["ours write"], seconds[f"{what} write"], of=of)
        for what, of in (("plain", ""), ("lz4", "with compression.type=lz4"))
    ]
    delta = _row("delta_append", seconds["ours write"], seconds["delta write"], "a plain Spark append to a Delta table")
    reads = [
        _row(f"spark_{what}{suffix}", seconds[f"ours {what}"], seconds[f"{side} {what}"])
        for what in ("read", "stream")
        for side, suffix in (("peer", ""), ("tuned", "_tuned"))
    ]
    return [write, *tuned, *reads, delta]


def _check(taken: dict[str, Answer], rows: int) -> None:
    """RuntimeError when a side did not read everything."""
    for name, answer in taken.items():
        if answer.get("rows", rows) != rows or answer.get("bytes", rows * VALUE_BYTES) != rows * VALUE_BYTES:
            raise RuntimeError(f"{name} gave {answer}, not {rows} rows of {VALUE_BYTES} bytes")


def _row(bench: str, ours_s: Sequence[float], peer_s: Sequence[float], peer_is: str = "Kafka", of: str = "") -> Row:
    ours, peer = (Spread.of([ROWS / each for each in seconds]) for seconds in (ours_s, peer_s))
    return Row(bench, of, "rows/s", False, ours, peer, peer_is)


def _views(lab: Lab, cluster: Cluster, app: SparkApp) -> list[Row]:
    """The committed view beside a read of the same topic; and over a topic of many partitions, by itself."""
    topic, many = lab.topic(cluster, "spark-view"), lab.topic(cluster, "spark-many", VIEW_PARTITIONS)
    app.ask("write", "ours", topic=topic, rows=ROWS)
    app.ask("write", "ours", topic=many, rows=ROWS // 10)
    taken: dict[str, list[Answer]] = {"view": [], "read": [], "many view": [], "many read": []}
    for number in range(WARM_ROUNDS + lab.rounds):
        for name, answers in taken.items():
            answer = app.ask(name.split()[-1], "ours", topic=many if name.startswith("many") else topic)
            _check({name: answer}, ROWS // 10 if name.startswith("many") else ROWS)
            if number >= WARM_ROUNDS:
                answers.append(answer)
    times = {name: Spread.of([a["load_s"] + a["s"] for a in answers]) for name, answers in taken.items()}
    show(f"spark_view: {', '.join(f'{name} {spread.median:.2f} s' for name, spread in times.items())}")
    of_many, beside = f"of {VIEW_PARTITIONS} partitions", "a read of the source"
    return [
        Row("spark_view", "", "s", True, times["view"], times["read"], beside),
        Row("spark_view", of_many, "s", True, times["many view"], times["many read"], beside),
    ]


def _plain_session(lab: Lab, cluster: Cluster, apps: dict[str, SparkApp]) -> list[Row]:
    """Ours in a session without a setting, without and with a call of `register_data_source`, beside the same in our
    session, in turns."""
    seconds: dict[str, list[float]] = {}
    for number in range(WARM_ROUNDS + lab.rounds):
        rows = ROWS if number >= WARM_ROUNDS else WARM_ROWS
        for side, asked in apps.items():
            topic = lab.topic(cluster, "spark-plain")
            taken = {"write": asked.ask("write", "ours", topic=topic, rows=rows)}
            taken |= {what: asked.ask(what, "ours", topic=topic) for what in ("read", "stream")}
            _check(taken, rows)
            show(f"spark_plain {side}: " + ", ".join(f"{name} {a['s']:.2f} s" for name, a in taken.items()))
            if number >= WARM_ROUNDS:
                for name, answer in taken.items():
                    seconds.setdefault(f"{side} {name}", []).append(answer["s"])
    return [
        _row("spark_plain", seconds[f"{side} {what}"], seconds[f"ours {what}"], "the same in our session", of=of)
        for side, suffix in ((PLAIN, ""), (REGISTERED, ", registered"))
        for what, of in ((what, f"{what}{suffix}") for what in ("write", "read", "stream"))
    ]


def _many_commits(lab: Lab, cluster: Cluster, app: SparkApp) -> list[Row]:
    """Reading a log of many small commits. Kafka's log has no commits and is filled by one Spark write."""
    topic, peer_topic = lab.topic(cluster, "spark-commits"), lab.peer_topic("spark-commits")
    fill_by_commits(cluster, topic, lab.payload(VALUE_BYTES))
    app.ask("write", "peer", topic=peer_topic, rows=ROWS)
    ours, peer, tuned = [], [], []
    for _ in range(lab.rounds):
        ours.append(app.ask("read", "ours", topic=topic))
        peer.append(app.ask("read", "peer", topic=peer_topic))
        tuned.append(app.ask("read", "peer", TUNED, topic=peer_topic))
    commits = min(DeltaTable(f"{cluster.path}/broker-1/{topic}-{n}").version() for n in range(PARTITIONS))
    show(f"spark_read from {commits} commits a partition: {[round(a['s'], 2) for a in ours]} s")
    of = f"from a log of {COMMITS:,} commits a partition"
    rates = [Spread.of([a["rows"] / a["s"] for a in side]) for side in (ours, peer, tuned)]
    more = {"commits_of_a_partition": commits, "rows": ours[0]["rows"]}
    return [
        Row("spark_read", of, "rows/s", False, rates[0], rates[1], more=more),
        Row("spark_read_tuned", of, "rows/s", False, rates[0], rates[2], more=more),
    ]


def fill_by_commits(cluster: Cluster, topic: str, payload: Payload) -> None:
    """Append about ROWS records in COMMITS commits of each partition, one by one: waiting ones would share a commit."""
    rows = ROWS // COMMITS // PARTITIONS
    numbers = [row // rows for row in range(rows * PARTITIONS)]
    with Producer(cluster, acks="all") as producer:
        for number in range(COMMITS + 1):
            table = payload.table(number).slice(0, rows * PARTITIONS)
            producer.send_table(topic, table.append_column("partition", [numbers])).result()


def _triggers(lab: Lab, cluster: Cluster, app: SparkApp) -> list[Row]:
    """How long one micro-batch of a small pipeline takes, from its start to its commit. Both sides are warmed up
    first, since the first query of a session runs code that is not compiled yet."""
    found: dict[str, list[Answer]] = {"ours": [], "peer": [], "tuned": []}
    for kind in ("ours", "tuned"):
        _trigger(lab, cluster, app, kind, BATCHES_WARM)
    for _ in range(lab.rounds):
        for kind, batches in (("ours", BATCHES), ("peer", BATCHES_UNTUNED), ("tuned", BATCHES)):
            found[kind].append(_trigger(lab, cluster, app, kind, batches))
        show(f"spark_trigger: {', '.join(f'{kind} {answers[-1]}' for kind, answers in found.items())}")
    return [
        Row(
            f"spark_trigger{suffix}", of, "ms", True,
            Spread.of([a[name] for a in found["ours"]]), Spread.of([a[name] for a in found[kind]]),
        )
        for kind, suffix in (("peer", ""), ("tuned", "_tuned"))
        for name, of in (("reader_ms", ""), ("writer_ms", "the writing query"))
    ]  # fmt: skip


def _trigger(lab: Lab, cluster: Cluster, app: SparkApp, kind: str, batches: int) -> Answer:
    """One pipeline over a new topic: `ours`, the `peer` at its defaults, or `tuned`."""
    if kind == "ours":
        return app.ask("trigger", "ours", topic=lab.topic(cluster, "spark-trigger"), batches=batches)
    options = TUNED if kind == "tuned" else {}
    return app.ask("trigger", "peer", options, topic=lab.peer_topic("spark-trigger"), batches=batches)
