"""How far groups are behind, one line for each partition. Kafka has no such tool: `groups --describe` has more columns.

I/O: committed offsets and log ends, from storage or from brokers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence

from stratalog import GroupAdmin, GroupLag
from stratalog.clients.admin.group_lag import lag_of
from stratalog.clients.client_view import ClientView
from stratalog.jobs.command.arguments import CLUSTER
from stratalog.jobs.command.flags import Flag, switch
from stratalog.jobs.command.opened import open_cluster
from stratalog.jobs.command.output import JSON, OUTPUT, print_rows
from stratalog.jobs.command.terminal import DONE
from stratalog.jobs.command.tool import Command
from stratalog.jobs.command.words import Words
from stratalog.jobs.text.consumer_groups import columns_text

PURPOSE = "Show how many offsets lie between what groups have committed and the high watermarks."
EPILOG = """examples (--root ROOT or --bootstrap-server HOST:PORT before them, or STRATA_ROOT, …):
  {prog}
  {prog} billing
  {prog} billing shipping --total --output json

Groups with the largest lag come first. A partition whose leader has published no high watermark has no lag, `-`.
exit code: 0
"""

# fmt: off
FLAGS = {**CLUSTER, "which groups, and how to show them": (
    Flag("group", "GROUP", "A group; may be repeated. All groups if not given.", is_repeated=True, letter="g"),
    switch("total", "One line for each group: the lag of all of its partitions."),
    OUTPUT,
)}
# fmt: on
WAIT_MS = 30_000


def lags(admin: GroupAdmin, view: ClientView, group_ids: Iterable[str]) -> list[GroupLag]:
    """The groups' lags, the largest first."""
    found = [lag_of(view, group_id, admin.committed(group_id)) for group_id in group_ids]
    return sorted(found, key=lambda each: (-each.total, each.group_id))


def rows_of(found: Iterable[GroupLag], *, only_totals: bool) -> list[dict[str, object]]:
    """A row for each group, or for each of its partitions."""
    if only_totals:
        return [{"group": each.group_id, "partitions": len(each.partitions), "lag": each.total} for each in found]
    return [
        {
            "group": each.group_id,
            "topic": row.topic_partition.topic,
            "partition": row.topic_partition.partition,
            "currentOffset": row.committed_offset,
            "logEndOffset": row.high_watermark,
            "lag": row.lag,
        }
        for each in found
        for row in each.partitions
    ]


HEADINGS: Mapping[str, str] = {
    "group": "GROUP", "topic": "TOPIC", "partition": "PARTITION", "partitions": "PARTITIONS",
    "currentOffset": "CURRENT-OFFSET", "logEndOffset": "LOG-END-OFFSET", "lag": "LAG",
}  # fmt: skip
"""The headings of `groups --describe`."""


def nothing_text(asked: Sequence[str]) -> str:
    """What stands for an empty table.

    >>> nothing_text([]), nothing_text(["a", "b"])
    ('There are no groups with committed offsets.', 'No committed offsets of a, b.')
    """
    return f"No committed offsets of {', '.join(asked)}." if asked else "There are no groups with committed offsets."


def lag(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    with open_cluster(given, wait_ms=WAIT_MS) as opened, opened.groups(WAIT_MS, changes=False) as asked:
        admin = GroupAdmin(asked, opened.view)
        group_ids = list(dict.fromkeys(given.group)) or [each.group_id for each in admin.list_groups()]
        rows = rows_of(lags(admin, opened.view, group_ids), only_totals=given.total)
    if given.output == JSON:
        print_rows(rows)
    elif rows:
        print(columns_text({HEADINGS[name]: [row[name] for row in rows] for name in rows[0]}), end="")
    else:
        print(nothing_text(given.group))
    return DONE


main = Command("lag", PURPOSE, EPILOG, FLAGS, lag, (), Words(values=("group",)))
