"""Descriptions as HTML tables: what is shown is escaped, and readable."""

from __future__ import annotations

from html.parser import HTMLParser

from stratalog.clients.admin.group_description import ConsumerGroupDescription, ConsumerGroupMember
from stratalog.clients.admin.group_lag import GroupLag, PartitionLag
from stratalog.replication.html_table import ROWS_MAX, html_fields, html_table
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.server.admin.admin import BrokerDescription, ClusterDescription, TopicDescription
from stratalog.storage.records import TopicPartition


class Texts(HTMLParser):
    """The cells of tables by row, and all tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self.outside = ""
        self._is_cell = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert all(name == "style" or name == "colspan" for name, _ in attrs)
        self.tags.add(tag)
        self._is_cell = tag in ("td", "th")
        if tag == "tr":
            self.rows.append([])
        if self._is_cell:
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self._is_cell:
            self.rows[-1][-1] += data
        else:
            self.outside += data

    def handle_endtag(self, tag: str) -> None:
        self._is_cell = False


def test_every_text_is_escaped() -> None:
    evil = "<script>alert('x')</script>&\""
    found = Texts(html_table(evil, [evil], [[evil], [(evil, 2)]]) + html_fields({evil: evil}))
    assert found.tags == {"table", "caption", "b", "thead", "tr", "th", "tbody", "td", "div"}
    assert found.rows == [[evil], [evil], [f"{evil}, 2"]]
    assert found.outside == f"{evil}{evil}: {evil}"


def test_many_rows_are_counted_instead() -> None:
    found = Texts(html_table("t", ["a", "b"], [[i, None] for i in range(ROWS_MAX + 7)]))
    assert len(found.rows) == ROWS_MAX + 2
    assert found.rows[1] == ["0", "–"]
    assert found.rows[-1] == ["and 7 more"]


def test_a_topic_shows_its_partitions_and_configs() -> None:
    states = (
        PartitionRecord("t", 0, (1, 2, 3), 2, 4, (2, 3), 7, 1),
        PartitionRecord("t", 1, (1,), NO_LEADER, 1, (1,), 1, 1),
    )
    found = Texts(TopicDescription("t", "id-of-t", states, {"retention.ms": "1000"})._repr_html_())
    assert found.rows == [
        ["partition", "leader", "leader epoch", "replicas", "ISR"], ["0", "2", "4", "1, 2, 3", "2, 3"],
        ["1", "–", "1", "1", "1"],
    ]  # fmt: skip
    assert found.outside == "topic tid: id-of-t · retention.ms: 1000"


def test_a_cluster_shows_which_broker_is_fenced_and_which_is_the_controller() -> None:
    brokers = (BrokerDescription(1, 5, "/a", None, False), BrokerDescription(2, 6, "/b", "r", True))
    found = Texts(ClusterDescription("c", 1, 3, brokers)._repr_html_())
    assert found.rows[1:] == [
        ["1", "running", "yes", "5", "–", "/a"], ["2", "fenced", "no", "6", "r", "/b"],
    ]  # fmt: skip


def test_a_groups_lag_is_shown_by_partition_and_in_all() -> None:
    known, gone = PartitionLag(TopicPartition("t", 0), 3, 10), PartitionLag(TopicPartition("u", 1), 5, None)
    found = Texts(GroupLag("g", (known, gone))._repr_html_())
    assert found.rows[1:] == [["t", "0", "3", "10", "7"], ["u", "1", "5", "–", "–"]]
    assert found.outside == "group glag: 7"


def test_a_group_shows_its_members_and_what_they_have() -> None:
    member = ConsumerGroupMember("m-1", None, "c", "/h", (TopicPartition("t", 0), TopicPartition("t", 2)), None, 4)
    found = Texts(ConsumerGroupDescription("g", "Stable", "uniform", (member,), 5)._repr_html_())
    assert found.rows[1:] == [["m-1", "–", "c", "/h", "t-0, t-2", "4"]]
    assert found.outside == "group gstate: Stable · assignor: uniform · epoch: 5"
