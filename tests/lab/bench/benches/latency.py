"""latency_acks_all and partitions_500: open loops, where a slow answer does not hold up the next request.

I/O: both clusters. Requests of one record follow a fixed schedule; latency counts from the scheduled time to the
acknowledgement by all in-sync replicas. Ours runs with short fetch sessions, so that each follower hands over from
session to session many times in the window; the sessions record when they were active.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace

from stratalog import Cluster, Producer, RecordMetadata, StratalogError
from stratalog.storage.objects.opened import open_store
from tests.lab.bench.benches.stalls import DESCRIBED_MAX, checkpoints_s, described, sampling, stalls_of
from tests.lab.bench.lab import PARTITIONS, Lab, Moment, Outcome, Window, show
from tests.lab.bench.measures import Row, latency_figures, rows_of

RATE_PER_S = 200
WINDOW_S, WARM_S = 115, 12
SESSION_MS = 20_000
"""The length of fetch sessions. Two overlap, so a follower hands over every ten seconds: ten times in the window."""

HAND_OVERS_MIN = 10
MANY_PARTITIONS = 500
MANY_WINDOW_S, MANY_WARM_S, MANY_WINDOWS = 100, 5, 3
WRITTEN_BACK_S = 40
"""The time in which the kernel writes back what was not on the disk yet (Linux: after 30 s, checked every 5)."""


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests at a fixed rate over the partitions in turn, for a window after a warm-up."""

    partitions: int
    rate_per_s: int
    warm_s: int
    window_s: int


def latency_acks_all(lab: Lab) -> Outcome:
    """200 requests a second on six partitions."""
    loop = OpenLoop(PARTITIONS, RATE_PER_S, WARM_S, WINDOW_S)
    with lab.cluster(stratalog_fetch_session_ms=SESSION_MS) as cluster:
        with sampling() as samples:
            began_ms, mine = ours(lab, cluster, lab.topic(cluster, "open-loop"), loop)
        hand_overs = hand_overs_s(cluster, began_ms, loop.window_s)
        checkpoints = checkpoints_s({number: cluster.broker(number).root for number in cluster.brokers()}, began_ms)
        shifted = [replace(each, at_s=each.at_s - began_ms / 1000) for each in samples]
        for stall in stalls_of(mine)[:DESCRIBED_MAX]:
            show(f"latency_acks_all: {described(stall, hand_overs, checkpoints, shifted)}")
        window = Window(tuple(mine), tuple(peers(lab, lab.peer_topic("open-loop"), loop)), hand_overs)
        show(f"latency_acks_all: {_summary(window)}")
    counts = [len(times) for times in window.hand_overs_s.values()]
    rows = _rows("latency_acks_all", window)
    least, most = min(counts, default=0), max(counts, default=0)
    note = (
        f"`latency_acks_all`: {loop.rate_per_s} requests/s for {loop.window_s} s; each follower handed over between "
        f"fetch sessions {least} to {most} times in the window."
    )
    if least < HAND_OVERS_MIN:
        note += f" That is fewer than the {HAND_OVERS_MIN} wanted."
    return Outcome(rows, (note,), window)


def partitions_500(lab: Lab) -> Outcome:
    """One request a second to each of 500 partitions, three windows a side. Kafka first, then ours with no Kafka beside
    it: two cores do not hold 3,000 replicas."""
    loop = OpenLoop(MANY_PARTITIONS, MANY_PARTITIONS, MANY_WARM_S, MANY_WINDOW_S)
    name = "partitions_500"
    peer_topic = lab.peer_topic(name, MANY_PARTITIONS)
    theirs = [peers(lab, peer_topic, loop) for _ in range(MANY_WINDOWS)]
    lab.stop_peer()
    time.sleep(WRITTEN_BACK_S)
    with lab.cluster() as cluster:
        topic = lab.topic(cluster, name, MANY_PARTITIONS)
        mine = [ours(lab, cluster, topic, loop)[1] for _ in range(MANY_WINDOWS)]
    windows = [Window(tuple(own), tuple(others), {}) for own, others in zip(mine, theirs, strict=True)]
    for window in windows:
        show(f"{name}: {_summary(window)}")
    note = (
        f"`{name}`: {MANY_WINDOWS} windows of {MANY_WINDOW_S} s a side, one record a second to each partition, "
        "one side at a time."
    )
    return Outcome(_rows(name, *windows), (note,))


def _rows(bench: str, *windows: Window) -> list[Row]:
    ours, peer = (
        [latency_figures([moment.latency_ms for moment in side]) for side in sides]
        for sides in ((window.ours for window in windows), (window.peer for window in windows))
    )
    return rows_of(bench, "ms", ours, peer)


def _summary(window: Window) -> str:
    sides = [latency_figures([moment.latency_ms for moment in side]) for side in (window.ours, window.peer)]
    texts = [", ".join(f"{name} {value:.1f}" for name, value in side.items()) for side in sides]
    return f"{texts[0]} ms against {texts[1]} ms; hand-overs {[len(t) for t in window.hand_overs_s.values()]}"


def ours(lab: Lab, cluster: Cluster, topic: str, loop: OpenLoop) -> tuple[int, list[Moment]]:
    """When the window began (wall clock, ms), and its requests."""
    payload = lab.payload(100)
    values = [payload.value(number) for number in range(1_000)]
    warm, counted = loop.rate_per_s * loop.warm_s, loop.rate_per_s * loop.window_s
    moments: list[Moment] = []
    failures: list[StratalogError] = []
    with Producer(cluster, acks="all", linger_ms=0) as producer:
        start = time.perf_counter() + 0.1
        began_ms = round(1000 * (time.time() + 0.1 + loop.warm_s))
        for number in range(warm + counted):
            due = start + number / loop.rate_per_s

            def answered(_: RecordMetadata | None, error: StratalogError | None, due: float = due) -> None:
                moments.append(Moment(due - start - loop.warm_s, 1000 * (time.perf_counter() - due)))
                failures.extend(filter(None, [error]))

            pause_s = due - time.perf_counter()
            if pause_s > 0:
                time.sleep(pause_s)
            producer.send(topic, values[number % len(values)], partition=number % loop.partitions, on_delivery=answered)
        producer.flush()
    if failures:
        raise failures[0]
    return began_ms, [moment for moment in sorted(moments, key=lambda m: m.due_s) if moment.due_s >= 0]


def peers(lab: Lab, topic: str, loop: OpenLoop) -> list[Moment]:
    """The window's requests."""
    text = lab.peer.program(
        "OpenLoop", lab.peer.bootstrap, topic, loop.partitions, loop.rate_per_s, loop.warm_s, loop.window_s,
        lab.payload(100).lines,
    )  # fmt: skip
    *lines, errors = [line.split() for line in text.splitlines() if line[:1].isdigit() or line.startswith("errors")]
    if errors != ["errors", "0"]:
        raise RuntimeError(f"Kafka's open loop: {' '.join(errors)}")
    return [Moment(int(due) / 1e9, int(latency) / 1e6) for due, latency in lines]


def hand_overs_s(cluster: Cluster, began_ms: int, window_s: int) -> dict[int, tuple[float, ...]]:
    """When a fetch session became the active one in the window, seconds from its start, by broker.

    Each session keeps a register `fetch/<broker epoch>/<session>` with the times of its states, wall clock.
    """
    found: dict[int, tuple[float, ...]] = {}
    for broker_id in cluster.brokers():
        objects = open_store(cluster.broker(broker_id).root)
        lives = [json.loads(objects.get_register(meta.path) or b"{}") for meta in objects.list("fetch/")]
        times = [(life["active_ms"] - began_ms) / 1000 for life in lives if "active_ms" in life]
        found[broker_id] = tuple(sorted(at for at in times if 0 <= at < window_s))
    return found
