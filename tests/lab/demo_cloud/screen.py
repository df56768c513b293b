"""What the demo in a bucket shows in the end: the claims, and what was measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stratalog.jobs.demo.verdict import FAILOVER_MS_MAX, Check, Differences, percentile
from stratalog.storage.metering.prices import PriceList
from tests.lab.bench.simulated.figures import CloudRound

CLOSED, OUTSIDE, KILLED = "closed loop", "outside reader", "under the kill"
LABELS: Mapping[str, str] = {
    CLOSED: "acks=all, one record in flight",
    KILLED: "acks=all, the web log, the kill in it",
    OUTSIDE: "until deltalake in another process sees it",
}


@dataclass(frozen=True, slots=True)
class CloudOutcome:
    """What happened to the web log.

    failover_ms  from the kill to the next acknowledgement of a partition that the killed broker led; None: there was
                 none
    stored       rows by each outside reader
    moved        records that an outside reader found at another offset than was acknowledged, or not at all
    """

    sent: int
    acknowledged: int
    differences: Differences
    killed: int
    failover_ms: float | None
    stored: Mapping[str, int]
    moved: int


def checks_of(outcome: CloudOutcome) -> list[Check]:
    """Every claim with what was found; the demo passes when all hold."""
    found, sent = outcome.differences, outcome.sent
    took_ms = outcome.failover_ms
    return [
        Check("sent", f"{sent:,}", sent > 0, "lines of a real web log, three brokers, one bucket, one copy of each"),
        Check("acknowledged", f"{outcome.acknowledged:,}", outcome.acknowledged == sent, "acks=all"),
        Check(
            "failover",
            "never" if took_ms is None else f"{took_ms / 1_000:.1f} s",
            took_ms is not None and took_ms <= FAILOVER_MS_MAX,
            f"broker {outcome.killed}, which led most, was killed; until its partitions acknowledged again",
        ),
        Check("lost", f"{found.lost:,}", found.lost == 0, "of what a consumer read beside it"),
        Check("twice", f"{found.duplicated:,}", found.duplicated + found.never_sent == 0),
        Check("order per key", f"{found.reordered_keys:,} keys differ", found.reordered_keys == 0),
        *(
            Check(f"read by {reader}", f"{count:,}", count == sent, "with all brokers stopped")
            for reader, count in outcome.stored.items()
        ),
        Check("offsets", f"{outcome.moved:,} moved", outcome.moved == 0, "since they were acknowledged"),
    ]


def screen_lines(profile: str, checks: Sequence[Check], figures: CloudRound, prices: PriceList) -> list[str]:
    """All of it. The figures say that they are simulated."""
    named = figures.figures(prices)
    verdict = [f"{'ok' if each.holds else 'FAILED':<7}{each.name:<19}{each.value:<15}{each.note}" for each in checks]
    latencies = [
        f"  {label:<46}p50 {percentile(figures.latencies_ms[loop], 50):7.0f} ms   "
        f"p99 {percentile(figures.latencies_ms[loop], 99):7.0f} ms"
        for loop, label in LABELS.items()
    ]
    writes, requests = named["writes an acknowledgement"], named["requests an acknowledgement"]
    idle_s, per_s = figures.idle.took_s, named["idle"]
    mib_per_s = figures.bulk.mib_per_s
    return [
        *(line.rstrip() for line in verdict),
        "The verdict holds." if all(each.holds for each in checks) else "THE VERDICT FAILS.",
        "",
        f"Simulated: each request takes as long as the profile '{profile}' draws (tests/stores/cloud/profiles.toml).",
        *latencies,
        f"  {'requests of an acknowledgement':<46}{writes:.2f} writes, {requests:.2f} in all, beyond an idle cluster's",
        f"Prices of {prices.name}, read on {prices.read_on.isoformat()}: requests and traffic alone.",
        f"  {'a GiB written':<46}${named['a GiB written']:.4f}, at {mib_per_s:.1f} MiB/s of values",
        f"  {'a month of nothing':<46}${named['idle a month']:.2f}, from {idle_s:.0f} s of {per_s:.1f} requests/s",
    ]
