"""docs/POWER_CUTS.md, and every count for power_cuts.json, from the results of a run."""

from __future__ import annotations

from statistics import median

from tests.lab.real.power.run import CHECK_EVERY, CUTS_A_TOPIC, ONE, ROOM, TWO, PowerResult
from tests.lab.real.power.volatile_disk import BLOCK_BYTES, JOURNAL, POSIX, SECTOR_BYTES

TEXT = """# Power cuts

Written by `make power` (`{command}`), which needs root, FUSE and `losetup`. Three broker processes have their roots,
and the metadata root, on four FUSE file systems that drop what is not durable when their power is cut
(`tests/lab/real/power/volatile_disk.py`). At a cut brokers are killed with SIGKILL, then their disks choose, by the
seed of the cut, what of the unsynced changes is left; then the brokers start again. Meanwhile two idempotent
producers with `acks=all` and a consumer, in a process that stays up, work on topics with three replicas and
`min.insync.replicas=2`, half of them with `flush.messages=1`.

What a cut may do ({order}): {rules}. Content and size of a file that was not synced: each block
of {block:,} or {sector} bytes is that of any state since the last sync, or zeros where nothing was written; the size
is any that the file had, or one between. The kernel writes back by itself after {writeback_s:g} s.

| what | count |
| --- | --- |
{rows}

[power_cuts.json](power_cuts.json) has more. After every {every} cuts the tables of all in-sync replicas are read by
deltalake and compared with every acknowledgement and every read: lost, doubled and changed records, holes, two values
of one offset in one leader epoch, two leaders of one epoch, replicas that differ. After {topic_cuts} cuts every table
is also read by stratalog{spark}; then the topics are deleted and others are written.

**With `flush.messages=1`**: {flushed_verdict}

**Without**: {plain_verdict}

Findings: **{findings}**.
"""
ORDERS = {
    POSIX: "no more is promised than POSIX does: each change of a directory (a file made, linked, renamed, deleted) "
    "that was not synced by fsync of that directory is kept or lost for itself; fsync of a file does nothing for its "
    "name",
    JOURNAL: "as ext4 and XFS promise: changes of directories are durable in their order, and every fsync makes the "
    "earlier ones durable",
}


SHOWN = 6
"""How many counts, the first ones, the page has."""


def counts_of(result: PowerResult) -> dict[str, float]:
    """What was cut, lost, acknowledged and read."""
    disks = result.disks
    return {
        "cuts": sum(result.cuts.values()),
        **{f"of them of {kind}": result.cuts[kind] for kind in (ONE, TWO, ROOM)},
        "records acknowledged": result.acknowledged,
        "records read": result.polled,
        "seed of the run": result.seed,
        "duration [min]": round(result.seconds / 60),
        "disks cut": disks["cuts"],
        "pending changes of directories": disks["changes"],
        "changes of directories lost": disks["changes_lost"],
        "files with unsynced content": disks["files_unsynced"],
        "files as of the last sync": disks["files_old"],
        "files torn": disks["files_torn"],
        "files lost as a whole": disks["files_lost"],
        "sends given up by the producer (outcome unknown)": result.failed,
        "all replicas in sync after the start, median [s]": round(median(result.in_sync_s), 1),
        "all replicas in sync after the start, longest [s]": round(max(result.in_sync_s), 1),
        "tables read by deltalake": result.tables_read,
        "tables recovered apart, as copies": result.tables_recovered,
        "tables read by delta-spark": result.tables_by_spark,
    }


def report_text(result: PowerResult, command: str) -> str:
    rules = result.rules
    rows = "\n".join(f"| {name} | {value:,} |" for name, value in list(counts_of(result).items())[:SHOWN])
    lost = "nothing acknowledged was lost" if not result.findings else "see the findings"
    plain = (
        f"{lost} by cuts of one or two brokers, where a member of the ISR kept its power. Cuts of all three took the "
        f"unsynced tail of the log: {result.lost_tail:,} acknowledged records. A record that the disk of any replica "
        "kept is not among them: it would be a finding."
    )
    text = TEXT.format(
        command=command, every=CHECK_EVERY, topic_cuts=CUTS_A_TOPIC, order=rules.order,
        spark=", the last ones by delta-spark, too" if result.tables_by_spark else "",
        rules=ORDERS[rules.order], block=BLOCK_BYTES, sector=SECTOR_BYTES,
        writeback_s=rules.writeback_ms / 1000, rows=rows, plain_verdict=plain,
        flushed_verdict=f"{lost}, also when all three brokers and the metadata root lost power at once.",
        findings="none" if not result.findings else "; ".join(f"{x.rule}: {x.text}" for x in result.findings[:20]),
    )  # fmt: skip
    return "\n\n".join(part if part.startswith("|") else " ".join(part.split()) for part in text.split("\n\n")) + "\n"
