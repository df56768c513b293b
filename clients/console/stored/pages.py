"""Pages of what storage alone answers: the past, a record's way, erasures, files, SQL. Pure.

Each page shows one question of `stored` or `sql`; `application` adds them to its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from stratalog.clients.console.stored.timeline import LeadershipEvent
from stratalog.replication.metadata.records import NO_LEADER

STORED_PAGES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "/record_way": ("record_way", "record_way.html"),
        "/who_led": ("who_led", "who_led.html"),
        "/topic_as_of": ("topic_as_of", "topic_as_of.html"),
        "/group_as_of": ("group_as_of", "group_as_of.html"),
        "/cluster_as_of": ("cluster_as_of", "cluster_as_of.html"),
        "/erasures": ("erasures", "erasures.html"),
        "/erasure": ("erasure", "erasure.html"),
        "/files": ("files", "files.html"),
        "/sql_tables": ("sql_tables", "sql_tables.html"),
        "/sql": ("sql", "sql.html"),
    }
)
"""Path -> the question of a page and its template."""
STORED_MENU = (("/cluster_as_of", "Past"), ("/erasures", "Erasures"), ("/sql", "SQL"))
STORED_SECTIONS: Mapping[str, str] = MappingProxyType(
    {
        "/record_way": "/topics",
        "/who_led": "/topics",
        "/topic_as_of": "/topics",
        "/files": "/topics",
        "/group_as_of": "/groups",
        "/erasure": "/erasures",
        "/sql_tables": "/sql",
    }
)
"""Path of a page that is not in the menu -> the one under which it is."""
STORED_FORMS = frozenset({"/sql"})
"""Pages that show their form again, with the reason, when the question is refused."""
WIDTH, ROW_HEIGHT, LABEL_WIDTH = 900, 26, 60
COLOURS = 6
"""Number of colours of the sheet of styles, `leads-0` to `leads-5`."""


def timeline_bars(events: Sequence[LeadershipEvent], now_ms: int) -> dict[str, object]:
    """A picture of who led: a row for each partition, a bar for each state; the table beside it has the numbers.

    Two states of 10 s each of one partition give two bars of half the width.
    """
    partitions = sorted({each.partition for each in events})
    rows = {number: row for row, number in enumerate(partitions)}
    first = min((each.at_ms for each in events), default=now_ms)
    scale = (WIDTH - LABEL_WIDTH) / max(1, now_ms - first)
    bars = []
    for each in events:
        until = now_ms if each.until_ms is None else each.until_ms
        bars.append(
            {
                "x": round(LABEL_WIDTH + (each.at_ms - first) * scale, 1),
                "y": rows[each.partition] * ROW_HEIGHT + 4,
                "width": max(1.0, round((until - each.at_ms) * scale, 1)),
                "colour": "leads-none" if each.leader == NO_LEADER else f"leads-{each.leader % COLOURS}",
                "leader": each.leader,
                "title": f"partition {each.partition}: {', '.join(each.what)}; leader {each.leader}, "
                f"epoch {each.leader_epoch}, ISR {','.join(map(str, each.isr))}",
            }
        )
    labels = [{"y": row * ROW_HEIGHT + 17, "text": str(number)} for number, row in rows.items()]
    return {"width": WIDTH, "height": len(partitions) * ROW_HEIGHT + 8, "bars": bars, "labels": labels}
