"""Dashboards and alert rules ask for metrics that a broker has, and compose, chart and rules fit each other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stratalog.jobs.command.listen_at import check_listener
from stratalog.jobs.console import main as console

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
FILES = DEPLOY / "helm" / "stratalog" / "files"
WORDS = {
    "absent", "and", "avg", "bool", "by", "changes", "count", "delta", "group_left", "increase", "irate", "max",
    "max_over_time", "min", "offset", "on", "or", "rate", "sum", "topk", "unless", "without",
}  # fmt: skip
EXAMPLES = sorted((DEPLOY / "helm" / "stratalog" / "examples").glob("*.yaml"))
PROMETHEUS_OWN = {"up"}


def names_of(expression: str) -> set[str]:
    """The metrics that a PromQL expression asks for.

    >>> sorted(names_of('sum by (topic) (rate(a_total{job=~"$job"}[5m])) / max(b) > 0.5'))
    ['a_total', 'b']
    """
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\"[^\"]*\"", "", expression)
    text = re.sub(r"\b(by|without|on|group_left)\s*\([^)]*\)", "", text)
    return set(re.findall(r"\b[a-zA-Z_][a-zA-Z0-9_]*\b", text)) - WORDS


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FILES / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboards() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((FILES / "dashboards").glob("*.json")):
        yield path.name, json.loads(path.read_text(encoding="utf-8"))


def expressions() -> list[tuple[str, str]]:
    """(where, expression) of every alert, panel and variable."""
    found = [(rule["alert"], rule["expr"]) for rule in rules()]
    for name, board in dashboards():
        found += [(f"{name}: {p['title']}", t["expr"]) for p in board["panels"] for t in p.get("targets", ())]
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                (asked,) = re.findall(r"label_values\((\w+),", variable["query"])
                found.append((f"{name}: ${variable['name']}", asked))
    return found


def test_every_expression_asks_for_something() -> None:
    assert [where for where, expression in expressions() if not names_of(expression)] == []
    assert len(expressions()) > 30


def test_an_alert_says_how_bad_it_is_and_what_it_means() -> None:
    assert {rule["labels"]["severity"] for rule in rules()} == {"critical", "warning"}
    assert [rule["alert"] for rule in rules() if not rule["annotations"]["summary"] or "for" not in rule] == []
    assert len({rule["alert"] for rule in rules()}) == len(rules())


def test_panels_do_not_overlap() -> None:
    for _name, board in dashboards():
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert not taken & cells, panel["title"]
            taken |= cells


def test_composes_brokers_differ_only_in_what_is_their_own() -> None:
    services = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8"))["services"]
    brokers = {name: each for name, each in services.items() if name.startswith("broker-")}
    assert len(brokers) == 3
    shown = {
        re.sub(r"broker-\d|1909\d|broker\.id=\d", "own", json.dumps(each, sort_keys=True)) for each in brokers.values()
    }
    assert len(shown) == 1


def test_composes_console_may_listen_and_is_reached_from_this_machine_alone() -> None:
    service = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8"))["services"]["console"]
    tool, *words = service["command"]
    assert tool == "console"
    given = console.checked(words)
    check_listener(given)
    assert not given.allow_changes
    assert service["ports"] == ["127.0.0.1:8088:8088"]
    assert service["volumes"] == ["roots:/var/lib/stratalog:ro"]


def test_composes_mounts_exist() -> None:
    services = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8"))["services"]
    paths = [each.split(":")[0] for name in ("prometheus", "grafana") for each in services[name]["volumes"]]
    assert [path for path in paths if not (DEPLOY / "compose" / path).exists()] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_set_what_the_chart_has(path: Path) -> None:
    def unknown(given: dict[str, Any], known: dict[str, Any], at: str) -> Iterator[str]:
        for name, value in given.items():
            if name not in known and known:
                yield f"{at}{name}"
            elif isinstance(value, dict) and isinstance(known.get(name), dict) and f"{at}{name}" != "config":
                yield from unknown(value, known[name], f"{at}{name}.")

    values = yaml.safe_load((DEPLOY / "helm" / "stratalog" / "values.yaml").read_text(encoding="utf-8"))
    given = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert list(unknown(given, values, "")) == []
