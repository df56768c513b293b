"""The demo on the terminal: live progress on standard error, the verdict on standard output. I/O: the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from stratalog.jobs.demo.verdict import Check, PartitionEpoch

WIDTH_WITHOUT_TERMINAL = 120


@dataclass(slots=True)
class Status:
    """What the screen shows while the demo runs."""

    stage: str = "starting Spark and three brokers"
    sent: int = 1
    acknowledged: int = 0
    consumed: int = 0
    read: int = 0
    latency_ms: float | None = None
    brokers: Mapping[int, str] = field(default_factory=dict)


class Screen:
    """Live progress; nothing at all when stderr is not a terminal. Use in a `with` block."""

    def __init__(self) -> None:
        self.status = Status()
        console = Console(stderr=True)
        self._live = Live(console=console, transient=True, auto_refresh=False) if console.is_terminal else None

    def show(self) -> None:
        """Draw the status as it is now."""
        if self._live is not None:
            self._live.update(_picture(self.status), refresh=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        self.show()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._live is not None:
            self._live.stop()


def _picture(status: Status) -> Table:
    picture = Table.grid(padding=(0, 2))
    picture.add_row("[bold]stratalog[/]", f"[bold]{status.stage}[/]")
    for name, count in (
        ("acknowledged", status.acknowledged),
        ("consumed", status.consumed),
        ("read by the group", status.read),
    ):
        bar = ProgressBar(total=status.sent, completed=count, width=40)
        picture.add_row(name, bar, f"{count:,} of {status.sent:,}")
    if status.latency_ms is not None:
        picture.add_row("acks=all latency", f"{status.latency_ms:.1f} ms", "median of the last 50")
    for broker_id, state in status.brokers.items():
        picture.add_row(f"broker {broker_id}", state)
    return picture


def print_verdict(
    checks: Sequence[Check], before: Mapping[int, PartitionEpoch], after: Mapping[int, PartitionEpoch], topic: str
) -> None:
    """Print the tables: every claim, and the leader of each partition before and after."""
    console = _console()
    claims = Table("claim", "found", "", "", title="Verdict", title_justify="left")
    for check in checks:
        claims.add_row(check.name, check.value, "[green]ok[/]" if check.holds else "[bold red]FAILED[/]", check.note)
    console.print(claims)
    leaders = Table("partition", "before", "after", title="Leaders", title_justify="left")
    for partition, was in before.items():
        leaders.add_row(f"{topic}-{partition}", _led(was), _led(after[partition]))
    console.print(leaders)


def next_steps(path: Path, topic: str, chart: Path, failover_version: int) -> list[str]:
    """SQL and Python for the data that the demo leaves behind, ready to be pasted below the project's folder."""
    version = f" VERSION AS OF {failover_version}"
    return [
        f"The chart: {chart}",
        "",
        "Query the data (start .venv/bin/python in this folder):",
        "",
        "  from stratalog import stratalog_session",
        "  spark = stratalog_session('demo')",
        "  # a replica of a partition is a Delta table",
        "  spark.sql('''SELECT base_offset + offset_delta AS offset, leader_epoch, string(key), string(value)",
        f"               FROM delta.`{path}/broker-1/{topic}-0` ORDER BY offset''').show()",
        "  # what the two queries of a group wrote",
        f"  spark.sql('SELECT minute, status, count(*) FROM delta.`{path}/hits` GROUP BY ALL ORDER BY ALL').show()",
        "  # the cluster's metadata, as it was while the broker was dead",
        f"  spark.sql('''SELECT string(key), string(value) FROM delta.`{path}/metadata/__cluster_metadata-0`{version}",
        "               ORDER BY base_offset + offset_delta DESC''').show(9, truncate=100)",
        "",
        "  # the same log without Spark",
        "  from stratalog import Consumer",
        f"  consumer = Consumer({str(path / 'metadata')!r}, auto_offset_reset='earliest')",
        f"  consumer.assign_all({topic!r}); consumer.poll(1000)[:3]",
        "  from deltalake import DeltaTable",
        f"  DeltaTable({str(path / 'broker-2' / f'{topic}-3')!r}).to_pandas()",
    ]


def _led(state: PartitionEpoch) -> str:
    return f"broker {state.leader}, epoch {state.leader_epoch}"


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH_WITHOUT_TERMINAL)
