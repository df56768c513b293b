"""Everything that one broker shows: its metrics and its health, as pages.

I/O: reads the running broker without blocking it, registers of its fetch sessions in its root, /proc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.registry import CollectorRegistry

from stratalog.replication.broker.broker import Broker
from stratalog.replication.controller.controller import Controller
from stratalog.replication.follower.metrics import (
    CopyTimes,
    ThreadFetch,
    fetch_metrics,
    fetch_metrics_prefix,
    thread_fetch_path,
)
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metrics import GAUGE, Histogram, Labels, Metric
from stratalog.replication.progress.progress import UNKNOWN
from stratalog.server.metrics.exposition import prometheus_text
from stratalog.server.metrics.health import Health, OwnState, is_alive, is_ready, is_safe_to_restart
from stratalog.server.metrics.http_server import METRICS, Page, ServedPath, ServedPaths, metrics_route
from stratalog.server.metrics.of_broker import TRAFFIC, LedLog, counter_metrics, log_metrics, state_metric
from stratalog.server.metrics.of_costs import Produced, StoreCosts
from stratalog.server.metrics.of_image import image_metrics
from stratalog.server.metrics.of_metadata_log import MetadataLogState, controller_metrics, metadata_log_metrics
from stratalog.server.metrics.of_partitions import ReadableOffsets, partition_metrics
from stratalog.server.metrics.of_process import disk_metrics, store_metrics
from stratalog.server.metrics.rates import A_MINUTE_MS, DecayingRates, RecentQuantiles
from stratalog.storage.clock import SystemClock
from stratalog.storage.errors import StratalogError
from stratalog.storage.metering.calls import StoreCalls, calls_of, calls_of_others, sum_of
from stratalog.storage.metering.prices import PriceBook
from stratalog.storage.objects.opened import open_store
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.records import TopicPartition

LIVEZ, READYZ, SAFE_TO_RESTART = "/livez", "/readyz", "/safe-to-restart"


class BrokerPage:
    """One broker's. Any thread may call it."""

    def __init__(
        self,
        broker: Broker,
        controller: Controller,
        metadata_root: str,
        book: PriceBook,
        further: Callable[[], Iterable[Metric]] = tuple,
    ) -> None:
        """`controller`: the candidate of the same process; `book`: prices of stores; `further`: metrics that others
        add."""
        self._broker = broker
        self._controller = controller
        self._metadata_root = metadata_root
        self._further = further
        self._clock = SystemClock()
        now_ms = self._clock.monotonic_ms()
        self._rates = DecayingRates(now_ms)
        self._minute_rates = DecayingRates(now_ms, A_MINUTE_MS)
        self._costs = StoreCosts(book, now_ms)
        self._quantiles = RecentQuantiles()
        self._stores: dict[str, ObjectStore] = {}
        registry = CollectorRegistry()
        self._of_python = (ProcessCollector(registry=registry), PlatformCollector(registry=registry), _gc(registry))

    def routes(self) -> ServedPaths:
        """The paths of the broker."""
        return {
            METRICS: metrics_route(self._text),
            LIVEZ: ServedPath(partial(_page, self.live), is_open=True),
            READYZ: ServedPath(partial(_page, self.ready), is_open=True),
            SAFE_TO_RESTART: ServedPath(partial(_page, self.safe_to_restart)),
        }

    # -- health -------------------------------------------------------------------------------------------

    def live(self) -> Health:
        """Whether the process works."""
        return is_alive(self._own_state())

    def ready(self) -> Health:
        """Whether the broker serves what is its own."""
        return is_ready(self._own_state(), self._broker.metadata.image)

    def safe_to_restart(self) -> Health:
        """Whether the cluster can do without the broker."""
        return is_safe_to_restart(self._own_state(), self._broker.metadata.image)

    def _own_state(self) -> OwnState:
        broker = self._broker
        failures = {
            named: str(led.failure) if led.failure is not None else None if led.partition is None else ""
            for named, led in dict(broker.leaders).items()
        }
        stopped_by = None if broker.stopped_by is None else str(broker.stopped_by)
        return OwnState(
            broker.broker_id, broker.broker_epoch, broker.run_state, stopped_by, broker.is_root_dead, failures
        )

    # -- metrics ------------------------------------------------------------------------------------------

    def _text(self) -> bytes:
        now_ms = self._clock.monotonic_ms()

        def quantiles(name: str, labels: Labels, times: Histogram) -> tuple[float, ...]:
            return self._quantiles.of((name, labels), times, now_ms)

        return prometheus_text(self.metrics(), quantiles, self._of_python)

    def metrics(self) -> list[Metric]:
        """All metrics of the broker, as of now."""
        broker, image = self._broker, self._broker.metadata.image
        leaders = dict(broker.leaders)
        offsets: dict[TopicPartition, ReadableOffsets] = {}
        lag_max = 0
        for named, led in leaders.items():
            partition = led.partition
            if partition is None:
                continue
            if partition.high_watermark != UNKNOWN:
                offsets[named] = ReadableOffsets(partition.log_start_offset, partition.high_watermark)
            sharing = led.state.sharing(broker.broker_id)  # their log is the leader's
            for replica, follower in list(partition.followers.items()):
                if replica not in sharing:
                    lag_max = max(lag_max, partition.log_end_offset - follower.log_end_offset)
        logs = {
            named: LedLog(
                led.log.log_start_offset,
                led.log.log_end_offset,
                list(led.log.files),
                led.log.state.cleaner.first_dirty_offset,
                led.config.is_compacted,
            )
            for named, led in leaders.items()
            if led.log.is_folded
        }
        return [
            state_metric(broker.run_state),
            *image_metrics(image, broker.broker_id),
            *partition_metrics(image, broker.broker_id, offsets),
            _max_lag(lag_max),
            _offline_root(is_dead=broker.is_root_dead),
            *counter_metrics(broker.metrics),
            self._traffic_rates(),
            *log_metrics(logs),
            *self._of_metadata(),
            *self._of_stores(image, logs),
            *broker.metrics.further(),
            *broker.coordinator_metrics(),
            *self._of_fetch_sessions(),
            *disk_metrics(),
            *self._further(),
        ]

    def _traffic_rates(self) -> Metric:
        """Rates as kafbat reads them: it takes a label's value for the name, and the label `topic`."""
        now_ms, values = self._clock.monotonic_ms(), dict[Labels, float]()
        for topic, traffic in list(self._broker.metrics.topics.items()):
            for name, _, value in TRAFFIC.values():
                rate = self._rates.rate((name, topic), value(traffic), now_ms)
                values[("name", name), ("topic", topic)] = rate
                values[(("name", name),)] = values.get((("name", name),), 0.0) + rate
        for name, _, _ in TRAFFIC.values():
            values.setdefault((("name", name),), 0.0)
        return Metric("kafka_server_brokertopicmetrics_fifteenminuterate", GAUGE, "Events a second.", values)

    def _of_metadata(self) -> list[Metric]:
        log, others = self._broker.metadata, self._controller.metadata
        calls = self._calls(self._metadata_root)
        end_offset = log.log.log_end_offset if log.log.is_folded else 0
        state = MetadataLogState(
            end_offset, log.commit_count + others.commit_count, log.commit_ms + others.commit_ms, calls
        )
        now_ms = self._clock.monotonic_ms()
        return [
            *metadata_log_metrics(log.image, self._broker.broker_id, state, self._minute_rates, now_ms),
            *controller_metrics(self._controller.counts, end_offset),
        ]

    def _of_stores(self, image: ClusterImage, logs: Mapping[TopicPartition, LedLog]) -> list[Metric]:
        """Calls to stores and what they cost. `logs`: of led partitions."""
        own, metadata = self._broker.root, self._metadata_root
        roots = {"metadata": metadata, "own": own}
        roots |= {f"domain:{name}": domain.url for name, domain in image.storage_domains.items()}
        by_root = {name: {url: self._calls(url)} for name, url in roots.items()}
        by_root["other"] = calls_of_others({store.url for store in self._stores.values()})
        led_bytes = dict[tuple[str, str], int]()
        for named, log in logs.items():
            state = image.partitions.get(named)
            domain = "" if state is None else state.domain_of(self._broker.broker_id)
            name = f"domain:{domain}" if domain else "own"
            place = roots.get(name, own), name
            led_bytes[place] = led_bytes.get(place, 0) + sum(entry.file.size_bytes for entry in log.files)
        written_bytes = sum(traffic.bytes_in for traffic in list(self._broker.metrics.topics.values()))
        return [
            *store_metrics({root: sum_of(stores.values()) for root, stores in by_root.items()}),
            *self._costs.metrics(by_root, Produced(written_bytes, led_bytes), self._clock.monotonic_ms()),
        ]

    def _store(self, root: str) -> ObjectStore:
        store = self._stores.get(root)
        if store is None:
            store = self._stores[root] = open_store(root)
        return store

    def _calls(self, root: str) -> StoreCalls:
        """Those of the process; none where the root is not there yet."""
        try:
            return calls_of(self._store(root).url)
        except StratalogError:
            return StoreCalls()

    def _of_fetch_sessions(self) -> list[Metric]:
        """What the broker's fetch sessions published last; nothing while its root is out of reach."""
        epoch, copied, in_threads = self._broker.broker_epoch, list[CopyTimes | None](), None
        try:
            objects = self._store(self._broker.root)
            contents = [objects.get_register(meta.path) for meta in objects.list(fetch_metrics_prefix(epoch))]
            copied = [CopyTimes.from_json(data) for data in contents if data is not None]
            data = objects.get_register(thread_fetch_path(epoch))
            in_threads = None if data is None else ThreadFetch.from_json(data)
        except StratalogError:
            pass
        return fetch_metrics(copied, self._clock.wall_ms(), in_threads)


def _page(question: Callable[[], Health], sees_all: bool) -> Page:
    health = question()
    return Page(health.to_json(names_reasons=sees_all), is_ok=health.is_ok)


def _gc(registry: CollectorRegistry) -> GCCollector:
    return GCCollector(registry=registry)


def _max_lag(records: int) -> Metric:
    doc = "The largest number of records that a follower of a led partition lacks."
    return Metric("kafka_server_replicafetchermanager_maxlag", GAUGE, doc, {(("clientId", "Replica"),): records})


def _offline_root(*, is_dead: bool) -> Metric:
    doc = "1 while the broker's own root answers no writes."
    return Metric("kafka_log_logmanager_offlinelogdirectorycount", GAUGE, doc, {(): int(is_dead)})
