"""Metrics in Prometheus' text format (0.0.4), written by prometheus-client. Pure.

A histogram is a summary there, as Strimzi's rules make one of Kafka's: quantiles and a count; a sum besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from stratalog.replication.metrics import COUNTER, HISTOGRAM, Histogram, Labels, Metric
from stratalog.server.metrics.rates import QUANTILES, quantile_ms

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
TOTAL = "_total"

Quantiles = Callable[[str, Labels, Histogram], tuple[float, ...]]
"""The quantiles of a histogram, by the metric's name and the value's labels; one for each of `QUANTILES`."""


def all_quantiles(_name: str, _labels: Labels, times: Histogram) -> tuple[float, ...]:
    """Of all durations since the start."""
    return tuple(quantile_ms(times.counts, float(quantile)) for quantile in QUANTILES)


class _Families(Collector):
    """Makes one family after the other: all samples at once would be some hundred thousand objects."""

    def __init__(self, by_name: Iterable[list[Metric]], quantiles: Quantiles, others: Iterable[Collector]) -> None:
        self._by_name = by_name
        self._quantiles = quantiles
        self._others = others

    def collect(self) -> Iterator[Family]:
        for metrics in self._by_name:
            family = _family(metrics[0])
            for metric in metrics:
                family.samples.extend(_samples(metric, self._quantiles))
            yield family
        for each in self._others:
            yield from each.collect()


def prometheus_text(
    metrics: Iterable[Metric], quantiles: Quantiles = all_quantiles, others: Iterable[Collector] = ()
) -> bytes:
    """The metrics, each name once, and those of prometheus-client's own collectors.

    >>> print(prometheus_text([Metric("kafka_brokers", "gauge", "Brokers.", {(): 3})]).decode(), end="")
    # HELP kafka_brokers Brokers.
    # TYPE kafka_brokers gauge
    kafka_brokers 3.0
    """
    by_name: dict[str, list[Metric]] = {}
    for metric in metrics:
        by_name.setdefault(metric.name, []).append(metric)
    return generate_latest(_Families(by_name.values(), quantiles, others))


def _family(metric: Metric) -> Family:
    """prometheus-client writes a counter's suffix itself; one with another suffix is of unknown type to it."""
    if metric.kind == COUNTER:
        is_total = metric.name.endswith(TOTAL)
        return Family(metric.name.removesuffix(TOTAL), metric.doc, "counter" if is_total else "unknown")
    return Family(metric.name, metric.doc, "summary" if metric.kind == HISTOGRAM else metric.kind)


def _samples(metric: Metric, quantiles: Quantiles) -> Iterator[Sample]:
    name, values = metric.name, metric.values
    if metric.kind != HISTOGRAM:
        for labels, value in values.items():
            assert not isinstance(value, Histogram)
            yield Sample(name, dict(labels), value)
        return
    for labels, times in values.items():
        assert isinstance(times, Histogram)
        named: Mapping[str, str] = dict(labels)
        for quantile, value_ms in zip(QUANTILES, quantiles(name, labels, times), strict=True):
            yield Sample(name, {**named, "quantile": quantile}, value_ms)
        yield Sample(f"{name}_sum", dict(named), times.sum_ms)
        yield Sample(f"{name}_count", dict(named), times.count)
