"""What a broker counts, its logs, and how Prometheus gets it."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stratalog.replication.controller.controller_counts import ControllerCounts
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.replication.metrics import COUNTER, GAUGE, BrokerMetrics, Histogram, Metric
from stratalog.server.metrics.exposition import prometheus_text
from stratalog.server.metrics.of_broker import LedLog, counter_metrics, log_metrics
from stratalog.server.metrics.of_metadata_log import MetadataLogState, controller_metrics, metadata_log_metrics
from stratalog.server.metrics.rates import A_MINUTE_MS, DecayingRates, IdleShare, RecentQuantiles
from stratalog.storage.files.data_file import DataFile, FileEntry
from stratalog.storage.metering.calls import StoreCalls
from stratalog.storage.records import TopicPartition
from tests.replication.images import image_of, partition


def values_in(text: bytes) -> dict[str, float]:
    """Each value by name and labels, as Prometheus' own parser reads the text."""
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_the_text_is_prometheus() -> None:
    counted = BrokerMetrics(
        isr_shrinks=2, waiting_count=lambda: 7, live_files_max=lambda: 6_000, append_pause_ms_max=lambda: 20
    )
    counted.topic("a").appended(10, 1_000, 3)
    counted.topic("b").appended(1, 5, 1)
    counted.fetched("a", 700)
    counted.fetched("c", 30)
    for took_ms in (1, 4, 4, 100_000):
        counted.total_time.observe(took_ms)
    text = prometheus_text(counter_metrics(counted))
    assert text.decode().splitlines()[:3] == [
        "# HELP kafka_server_replicamanager_isrshrinks_total ISRs that shrank.",
        "# TYPE kafka_server_replicamanager_isrshrinks_total counter",
        "kafka_server_replicamanager_isrshrinks_total 2.0",
    ]
    found = values_in(text)
    out = "kafka_server_brokertopicmetrics_bytesout_total"
    assert [found[f'{out}{{topic="{topic}"}}'] for topic in "abc"] == [700, 0, 30]
    assert found[out] == counted.bytes_out == 730
    assert found['kafka_server_brokertopicmetrics_bytesin_total{topic="a"}'] == 1_000
    assert found["kafka_server_brokertopicmetrics_messagesin_total"] == 11
    assert found['kafka_server_delayedoperationpurgatory_purgatorysize{delayedOperation="Produce"}'] == 7
    assert found["stratalog_server_upkeep_livefilesmax"] == 6_000
    assert found["stratalog_server_upkeep_appendpausemsmax"] == 20
    time = "stratalog_server_append_totaltimems"
    quantiles = [found[f'{time}{{quantile="{each}"}}'] for each in ("0.50", "0.75", "0.99")]
    assert quantiles == [3.5, 5.0, 30_000.0]
    assert (found[f"{time}_sum"], found[f"{time}_count"]) == (100_009, 4)


def test_a_name_is_one_family_whoever_adds_to_it() -> None:
    one = Metric("kafka_consumergroup_lag", GAUGE, "Lag.", {(("consumergroup", "a"),): 1})
    other = Metric("kafka_consumergroup_lag", GAUGE, "Lag.", {(("consumergroup", 'b"\n'),): 2})
    text = prometheus_text([one, Metric("x_total", COUNTER, "X.", {(): 1}), other])
    assert text.decode().count("# TYPE kafka_consumergroup_lag gauge") == 1
    assert set(values_in(text).values()) == {1, 2}


def entry(start: int, end: int, size_bytes: int, segment: int = 0) -> FileEntry:
    return FileEntry(DataFile(f"{start}", size_bytes, end - start, 0, end - start - 1, 0, 0), segment, 1, start)


def test_a_compacted_log_shows_how_far_its_cleaner_is() -> None:
    files = [entry(0, 10, 300), entry(10, 20, 100, segment=10)]
    logs = {
        TopicPartition("keyed", 0): LedLog(0, 20, files, first_dirty_offset=10, is_compacted=True),
        TopicPartition("plain", 0): LedLog(0, 20, files),
    }
    found = values_in(prometheus_text(log_metrics(logs)))
    of = '{partition="0",topic="keyed"}'
    assert found[f"kafka_log_log_size{of}"] == 400
    assert found[f"kafka_log_log_numlogsegments{of}"] == 2
    assert found[f"stratalog_log_logcleaner_firstdirtyoffset{of}"] == 10
    assert found[f"stratalog_log_logcleaner_dirty_percent{of}"] == 0.25
    assert found["kafka_log_logcleanermanager_max_dirty_percent"] == 25
    assert not [name for name in found if "logcleaner_" in name and "plain" in name]


def test_the_controller_counts_elections() -> None:
    counts = ControllerCounts()
    before = partition((1, 2), 1, (1, 2))
    counts.count(None, before)
    counts.count(before, before.changed(bump_leader_epoch=True, leader=2, isr=(2,)))
    counts.count(before, before.changed(bump_leader_epoch=True, leader=NO_LEADER))
    counts.count(before, before.changed(bump_leader_epoch=True, leader=2, isr=(2,), unclean=True))
    assert (counts.leader_elections, counts.unclean_elections) == (2, 1)
    found = values_in(prometheus_text(controller_metrics(counts, 9)))
    assert found["kafka_controller_controllerstats_uncleanleaderelections_total"] == 1
    assert found["kafka_controller_kafkacontroller_lastappliedrecordoffset"] == 8


@pytest.mark.parametrize(("broker_id", "state", "rates"), [(1, "leader", (2, 0)), (2, "follower", (0, 2))])
def test_the_metadata_log_has_the_names_of_raft(broker_id: int, state: str, rates: tuple[int, int]) -> None:
    image = image_of((1, 2), partition((1, 2), 1, (1, 2)))
    calls = StoreCalls(failed=1)
    calls.count("create", "x", 100)
    calls.count_read("get", "x", 30)
    known = MetadataLogState(20, commit_count=4, commit_ms=40, calls=calls)
    shown = metadata_log_metrics(image, broker_id, known, DecayingRates(0, A_MINUTE_MS), 10_000)
    found = values_in(prometheus_text(shown))
    raft, channel = "kafka_server_raftmetrics_", "kafka_server_raftchannelmetrics_"
    assert found[f'{raft}current_state{{current_state="{state}"}}'] == 1
    assert found[f"{raft}current_leader"] == image.controller_id == 1
    assert (found[f"{raft}append_records_rate"], found[f"{raft}fetch_records_rate"]) == rates
    assert found[f"{raft}commit_latency_avg"] == 10
    assert [found[f"{channel}{name}_total"] for name in ("request", "response", "incoming_byte", "outgoing_byte")] == [
        2, 1, 30, 100,
    ]  # fmt: skip


def test_quantiles_are_of_the_last_five_minutes() -> None:
    quantiles, times = RecentQuantiles(), Histogram()
    times.observe(20_000, count=100)
    assert quantiles.of("fetch", times, 0)[0] > 10_000
    for now_ms in range(30_000, 360_000, 30_000):
        times.observe(1, count=10)
        quantiles.of("fetch", times, now_ms)
    assert quantiles.of("fetch", times, 360_000)[-1] <= 1
    assert RecentQuantiles().of("fetch", Histogram(), 0) == (0.0,) * 6


def test_rates_decay_and_a_counter_may_begin_again() -> None:
    rates = DecayingRates(0, A_MINUTE_MS)
    assert rates.rate("in", 600, 60_000) == 10
    assert 10 < rates.rate("in", 1_800, 120_000) < 20
    assert rates.rate("in", 0, 12_000_000) < 0.1
    assert rates.rate("in", 0, 12_000_000) < 0.1


def test_idle_shares_are_between_two_readings() -> None:
    idle = IdleShare(0)
    second = 1_000_000_000
    assert idle.share(second, 2, second) == 0.5
    assert idle.share(9 * second, 2, second) == 0.5, "read again at once"
    assert idle.share(second, 2, 2 * second) == 1
    assert idle.share(99 * second, 2, 3 * second) == 0
