"""docs/EXACTLY_ONCE.md from the results of runs of `tests.lab.real.exactly_once.run`."""

from __future__ import annotations

from tests.lab.real.exactly_once.run import SETTINGS, Result

TEXT = """# Exactly once under faults

Written by `make exactly-once`. Three brokers and {processors} processors, each a process, on one machine ({machine}).
The processors read a topic of {records:,} records in one group and write each record to another topic, in transactions
that carry the group's offsets; replication factor 3, broker session timeout {session_s:g} s. Every few seconds a
processor, or the broker that coordinates the group or a transaction, or leads a partition of the input or output, is
killed (SIGKILL) or paused (SIGSTOP). Half of the paused processors are replaced at once under their transactional id.

In the end every input has to be in the output exactly once: for a read_committed consumer, and in each of the three
replicas as deltalake shows them, filtered by the transaction markers without the product. The group's offsets have to
be the ends of the input, and no transaction may be open. Processes call each other's brokers at their listeners, in
Kafka's frames.

| | {header} |
| --- |{rule}
{rows}
"""


def report_text(results: list[Result], machine: str) -> str:
    """`machine`: a short description of the machine."""
    columns = [facts(result) for result in results]
    return TEXT.format(
        processors=results[0].processors,
        records=results[0].records,
        machine=machine,
        session_s=SETTINGS["broker.session.timeout.ms"] / 1000,
        header=" | ".join(f"seed {result.seed}" for result in results),
        rule=" --- |" * len(results),
        rows="\n".join(f"| {what} | {' | '.join(column[what] for column in columns)} |" for what in columns[0]),
    )


def facts(result: Result) -> dict[str, str]:
    """A column of the table."""

    def noted(kind: str) -> str:
        return f"{result.notes.get(kind, 0):,}"

    def faults(words: str) -> str:
        return str(sum(count for fault, count in result.faults.items() if words in fault))

    return {
        "from the first committed transaction to the last [s]": f"{result.seconds:.0f}",
        "SIGKILL of brokers": str(int(faults("SIGKILL")) - int(faults("SIGKILL processor"))),
        "SIGSTOP of brokers": str(int(faults("SIGSTOP")) - int(faults("SIGSTOP processor"))),
        "of these, at the group's coordinator": faults("group coordinator"),
        "at a transaction's coordinator": faults("transaction coordinator"),
        "at a leader of the input": faults("input leader"),
        "at a leader of the output": faults("output leader"),
        "SIGKILL of processors": faults("SIGKILL processor"),
        "SIGSTOP of processors": faults("SIGSTOP processor"),
        "transactions committed": noted("committed"),
        "aborted by their processor": noted("aborted"),
        "processors that were fenced": noted("fenced"),
        "assignments of rebalances": noted("assigned"),
        "transaction, median [ms]": f"{result.transaction_ms_median:.0f}",
        "longest [ms]": f"{result.transaction_ms_max:,.0f}",
        "longest time without a commit [s]": f"{result.gap_s_max:.1f}",
        "the machine itself stood still [s]": f"{result.stalled_s:.1f}",
        "aborted records in the output": f"{result.aborted_records:,}",
        "inputs not in the output exactly once, for a consumer": f"**{result.wrong_for_consumer}**",
        "inputs not in the output exactly once, in the three replicas": f"**{result.wrong_in_replicas}**",
        "records in transactions that never ended": f"**{result.undecided}**",
        "input partitions whose offset is not their end": f"**{result.uncommitted}**",
    }
