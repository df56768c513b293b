"""What the classes of Kafka's group coordinator are asked (KIP-848): targets and records, from seeds. Pure."""

from __future__ import annotations

import random
from typing import Any

SHAPES = 500
RECORD_SETS = 100


def target_shapes() -> list[dict[str, Any]]:
    """Groups in two rounds: {"kind", "rounds": [{"counts": by topic id, "members": [{"id", "instance", "topics"}]}]}.
    The members' target before the second is what the first gave them."""
    return [_shape(random.Random(seed)) for seed in range(SHAPES)]


def record_sets() -> list[dict[str, Any]]:
    """The fields of a member and its group."""
    rng = random.Random(4)
    return [_record_set(rng) for _ in range(RECORD_SETS)]


def _shape(rng: random.Random) -> dict[str, Any]:
    large, same = rng.random() < 0.06, rng.random() < 0.4
    counts = {rng.randbytes(16).hex(): rng.randint(1, 40 if large else 9) for _ in range(rng.randint(1, 6))}
    members = [_member(rng, at, sorted(counts), same=same) for at in range(rng.randint(1, 30 if large else 8))]
    first = {"counts": counts, "members": sorted(members, key=lambda member: member["id"])}
    grown = {topic: count + rng.choice((0, 0, 1, 5)) for topic, count in counts.items()}
    stayed = [dict(member) for member in members if rng.random() < 0.8] or [dict(members[0])]
    for member in stayed:
        if not same and rng.random() < 0.3:
            member["topics"] = _subscription(rng, sorted(grown), same=same)
    new = [_member(rng, 100 + at, sorted(grown), same=same) for at in range(rng.choice((0, 0, 1, 3)))]
    second = {"counts": grown, "members": sorted(stayed + new, key=lambda member: member["id"])}
    return {"kind": "targets", "rounds": [first, second]}


def _member(rng: random.Random, at: int, topics: list[str], *, same: bool) -> dict[str, Any]:
    return {
        "id": f"member-{at:03}-{rng.randbytes(3).hex()}",
        "instance": f"instance-{rng.randrange(10**6)}" if rng.random() < 0.2 else None,
        "topics": _subscription(rng, topics, same=same),
    }


def _subscription(rng: random.Random, topics: list[str], *, same: bool) -> list[str]:
    return list(topics) if same else rng.sample(topics, rng.randint(1, len(topics)))


def _record_set(rng: random.Random) -> dict[str, Any]:
    topics = sorted(rng.randbytes(16).hex() for _ in range(rng.randrange(4)))
    partitions = [(topic, number) for topic in topics for number in sorted(rng.sample(range(200), rng.randint(1, 4)))]
    return {
        "kind": "records",
        "group": rng.choice(("g", "orders", "größer", "")),
        "member": f"member-{rng.randrange(100)}",
        "instance": rng.choice((None, "i-1")),
        "rack": rng.choice((None, "rack-a")),
        "client_id": rng.choice(("", "client-1")),
        "client_host": "/127.0.0.1",
        "topics": rng.sample(["a", "b", "Ä", "z.z"], rng.randrange(5)),
        "regex": rng.choice(("", "t.*")),
        "assignor": rng.choice((None, "uniform")),
        "timeout": rng.choice((-1, 300_000)),
        "epoch": rng.randint(-2, 10**6),
        "previous": rng.randint(-1, 10**6),
        "state": rng.randrange(3),
        "assigned": [[topic, number, rng.randrange(300)] for topic, number in partitions],
        "pending": [[topic, number + 200, rng.randrange(300)] for topic, number in partitions if rng.random() < 0.4],
        "number": rng.choice((0, rng.randrange(-(2**62), 2**62))),
    }
