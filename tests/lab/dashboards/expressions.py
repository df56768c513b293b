"""Expressions of published dashboards and alerts, and the series that each one asks for. Pure.

`strimzi.json` holds those of Strimzi's three Kafka dashboards and of its alerts, as the repository has them, without
what asks Kubernetes or a Java machine: containers, volumes, `jvm_*`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parent / "strimzi.json"
CLUSTER, NAMESPACE = "my-cluster", "kafka"
VARIABLES = {
    "kubernetes_namespace": NAMESPACE,
    "strimzi_cluster_name": CLUSTER,
    "kafka_broker": "kafka-.*",
    "kraft_node": "kafka-.*",
    "kafka_topic": ".+",
    "kafka_partition": ".+",
    "topic": ".+",
    "consumergroup": ".+",
}
"""What a reader of the dashboards has chosen."""
BY_PROMETHEUS = frozenset(
    {"namespace", "kubernetes_pod_name", "pod", "container", "strimzi_io_cluster", "strimzi_io_name", "strimzi_io_kind"}
)
"""Labels that the scrape's configuration adds, never the broker."""
_NAME = re.compile(r"(?<![\w$\"~])((?:kafka|process|stratalog)_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_GROUPING = re.compile(r"\bby\s*\(([^)]*)\)")
_COMPARED = re.compile(r"\s*(?:>|<|!=|==)\s*[0-9.]+\s*$")


class Asked(NamedTuple):
    """A metric that an expression names, and the labels that its series need to have."""

    name: str
    labels: frozenset[str]


class Published(NamedTuple):
    """Title and expression of the panels and variables by dashboard; expressions of alerts by their names."""

    panels: Mapping[str, list[tuple[str, str]]]
    alerts: Mapping[str, str]

    @property
    def all(self) -> list[tuple[str, str, str]]:
        """Dashboard, title, expression."""
        of_panels = [(board, title, text) for board, rows in self.panels.items() for title, text in rows]
        return [*of_panels, *(("alerts", name, text) for name, text in self.alerts.items())]


def published() -> Published:
    """The file's."""
    body = json.loads(FILE.read_text(encoding="utf-8"))
    panels = {board: [(title, text) for title, text in rows] for board, rows in body["panels"].items()}
    return Published(panels, body["alerts"])


def filled(expression: str) -> str:
    """With the values of `VARIABLES`.

    >>> filled('x{namespace="$kubernetes_namespace"}')
    'x{namespace="kafka"}'
    """
    return re.sub(r"\$(\w+)", lambda found: VARIABLES[found[1]], expression)


def without_bound(expression: str) -> str:
    """What an alert compares with its bound.

    >>> without_bound("sum(a) by (b) != 1")
    'sum(a) by (b)'
    """
    return _COMPARED.sub("", expression)


def asked(expression: str) -> list[Asked]:
    """The metrics of an expression with their labels, without those that Prometheus adds.

    >>> asked('sum(kafka_log_log_size{topic=~"$kafka_topic",topic!="",namespace="n"}) by (partition)')
    [Asked(name='kafka_log_log_size', labels=frozenset({'partition', 'topic'}))]
    """
    grouped = {each.strip() for found in _GROUPING.findall(expression) for each in found.split(",")}
    asked_for = []
    for name, matchers in _NAME.findall(expression):
        labels = {label for label, _, _ in _MATCHER.findall(matchers)}
        asked_for.append(Asked(name, frozenset((labels | grouped) - BY_PROMETHEUS)))
    return asked_for
