"""clients_tls: what TLS costs Kafka's `kafka-producer-perf-test`, against three broker processes of ours.

I/O: a cluster with a plain listener and one with TLS, over TCP, from a JVM of its own for each measurement. The two
listeners take turns; acks=all, batches of 16 KiB, topics with six partitions and three replicas.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.lab.bench.benches.clients import ROUND_S, SIZES_BYTES, Side, warm
from tests.lab.bench.lab import Lab, Outcome, show
from tests.lab.bench.measures import Row, Spread
from tests.lab.bench.peer.kafka import run_tool
from tests.lab.foreign.served import Form, Served
from tests.server.endpoint.security.certificate_authority import CertificateAuthority

BATCH_BYTES = 16_384
PLAIN, TLS = "PLAINTEXT", "TLS"


def clients_tls(lab: Lab) -> Outcome:
    """Records a second with TLS, beside those without."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        authority = CertificateAuthority(Path(folder))
        settings = {"ssl.keystore.location": authority.issue("broker")}
        configs = {"security.protocol": "SSL", "ssl.truststore.type": "PEM"}
        configs["ssl.truststore.location"] = str(authority.authority)
        with Served(Form.BROKERS, settings, listeners={TLS: "SSL"}) as served:
            plain = Side("without TLS", served.bootstrap, run_tool)
            secured = Side("with TLS", served.bootstrap_of(TLS), run_tool, configs)
            rows += [_cost(lab, plain, secured, size_bytes) for size_bytes in SIZES_BYTES]
    return Outcome(rows)


def _cost(lab: Lab, plain: Side, secured: Side, size_bytes: int) -> Row:
    payload, sides = lab.payload(size_bytes), (secured, plain)
    counts = [round(ROUND_S * warm(lab, side, payload, size_bytes, BATCH_BYTES, plain)) for side in sides]
    rates: list[list[float]] = [[], []]
    for number in range(lab.rounds):
        for side, count, found in zip(sides, counts, rates, strict=True):
            topic = plain.new_topic(lab, "tls")
            found.append(side.produced(topic, payload, count, BATCH_BYTES))
            plain.delete(topic)
        show(f"clients_tls {size_bytes} B, {number + 1}: {rates[0][-1]:,.0f} against {rates[1][-1]:,.0f} without")
    of = "100 B" if size_bytes == 100 else "1 KiB"
    return Row("clients_tls", of, "records/s", False, Spread.of(rates[0]), Spread.of(rates[1]), plain.name)
