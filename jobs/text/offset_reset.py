"""The new offsets of `consumer_groups --reset-offsets`: times, plans as CSV, bounds of the log. Pure.

Source: Kafka's OffsetsUtils and CsvUtils; `Duration.parse` and `Utils.getDateTime` for the two times.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from stratalog.jobs.command.terminal import UsageError
from stratalog.storage.records import TopicPartition

Plan = dict[TopicPartition, int]
"""The new offset of each partition."""

_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?=[-+\d])(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+)(?:[.,](\d{0,9}))?S)?)?",
    re.IGNORECASE,
)
_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1_000)


def within(
    wanted: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> tuple[Plan, list[str]]:
    """The offsets, moved into `[start, end]` where they lie outside, and a warning for each that was.

    Worked: 99 in a log that ends at 4 becomes 4.
    """
    plan: Plan = {}
    warnings: list[str] = []
    for partition, offset in sorted(wanted.items()):
        plan[partition] = min(max(offset, starts[partition]), ends[partition])
        if plan[partition] != offset:
            side = "higher than latest" if offset > ends[partition] else "lower than earliest"
            warnings.append(
                f"New offset ({offset}) is {side} offset for topic partition {partition}. "
                f"Value will be set to {plan[partition]}"
            )
    return plan, warnings


def shifted(partitions: Iterable[TopicPartition], committed: Mapping[TopicPartition, int], by: int) -> Plan:
    """Committed offsets plus `by`. UsageError for a partition without one."""
    plan: Plan = {}
    for partition in partitions:
        if partition not in committed:
            raise UsageError(
                f"Cannot shift offset for partition {partition} since there is no current committed offset"
            )
        plan[partition] = committed[partition] + by
    return plan


def parse_datetime_ms(text: str) -> int:
    """`YYYY-MM-DDThh:mm:ss.sss`, with or without a zone (`Z`, `+01`, `+01:00`; UTC if none), as ms since 1970.

    >>> parse_datetime_ms("2019-10-07T07:30:23.501")
    1570433423501
    """
    if "T" not in text:
        raise UsageError("Error parsing timestamp. It does not contain a 'T' according to ISO8601 format")
    try:
        found = datetime.fromisoformat(text)
    except ValueError as reason:
        raise UsageError(f'Unparseable date: "{text}"') from reason
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_duration_ms(text: str) -> int:
    """ISO 8601 as Java's Duration parses it: `PnDTnHnMnS`.

    >>> parse_duration_ms("P1DT1H"), parse_duration_ms("PT0.5S"), parse_duration_ms("-PT1M")
    (90000000, 500, -60000)
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()[1:5]):
        raise UsageError("Text cannot be parsed to a Duration")
    sign = -1 if found[1] == "-" else 1
    whole = sum(int(number) * unit for number, unit in zip(found.groups()[1:5], _UNITS_MS, strict=True) if number)
    fraction = int(f"{found[6] or '':0<3}"[:3]) * (-1 if (found[5] or "").startswith("-") else 1)
    return sign * (whole + fraction)


def parse_plan(text: str, group_ids: Iterable[str]) -> dict[str, Plan]:
    """The plans of a CSV file: `topic,partition,offset` for one group, with the group in front for several.

    UsageError naming the line that is neither.
    """
    groups = list(group_ids)
    plans: dict[str, Plan] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        if not row:
            continue
        is_short = len(row) == 3 and len(groups) == 1
        try:
            group_id, topic, partition, offset = (groups[0], *row) if is_short else row
            plans.setdefault(group_id, {})[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError as reason:
            expected = "topic,partition,offset" if len(groups) == 1 else "group,topic,partition,offset"
            raise UsageError(f"line {number} of the reset plan is not {expected}: {','.join(row)}") from reason
    return plans


def plan_csv(plans: Mapping[str, Mapping[TopicPartition, int]], *, one_group: bool) -> str:
    """`--export`: what `parse_plan` reads."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    for group_id, plan in plans.items():
        for partition, offset in sorted(plan.items()):
            row = (partition.topic, partition.partition, offset)
            writer.writerow(row if one_group else (group_id, *row))
    return written.getvalue()


def topic_argument(text: str) -> tuple[str, list[int] | None]:
    """`--topic`: a topic, with `:0,1` some of its partitions. UsageError in Kafka's words.

    >>> topic_argument("t:0,2"), topic_argument("t")
    (('t', [0, 2]), ('t', None))
    """
    topic, colon, numbers = text.partition(":")
    if not colon:
        return text, None
    if not topic or not numbers or ":" in numbers:
        raise UsageError(f"Invalid topic arg '{text}', expected topic name and partitions")
    for number in numbers.split(","):
        if not number.strip().isdigit():
            raise UsageError(f"Invalid partition '{number}' specified in topic arg '{text}''")
    return topic, [int(number) for number in numbers.split(",")]
