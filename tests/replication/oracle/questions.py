"""What Kafka's classes are asked: group shapes, keys, subscriptions, all from seeds. Pure.

A shape is a group in two rounds: the second has other members, subscriptions, partition counts, and what members own
is what the first gave them. Some members claim partitions that are not theirs, or come from an older generation.
"""

from __future__ import annotations

import random
from typing import Any

SHAPES = 1000
KEYS = 10_000
PROTOCOL_MESSAGES = 200
_RACKS = ("east", "west", "north")


def group_shapes() -> list[dict[str, Any]]:
    """`SHAPES` shapes: {"kind", "rounds": [{"topics": {name: racks of each partition}, "members": [...]}, ...]}."""
    return [_shape(random.Random(seed)) for seed in range(SHAPES)]


def murmur2_keys() -> list[bytes]:
    rng = random.Random(1)
    return [rng.randbytes(rng.choice((rng.randrange(5), rng.randrange(40), rng.randrange(300)))) for _ in range(KEYS)]


def group_ids() -> list[str]:
    """Names as people give them, and names in any script; surrogate pairs, too."""
    rng = random.Random(2)
    return [_name(rng) for _ in range(KEYS)]


def protocol_messages() -> list[dict[str, Any]]:
    rng = random.Random(3)
    return [_protocol_message(rng) for _ in range(PROTOCOL_MESSAGES)]


def _shape(rng: random.Random) -> dict[str, Any]:
    large = rng.random() < 0.05
    with_racks = rng.random() < 0.3
    same = rng.random() < 0.5
    topics = {f"topic-{rng.randrange(1000)}": 0 for _ in range(rng.randint(1, 12 if large else 5))}
    for topic in topics:
        topics[topic] = rng.randint(1, 30 if large else 9)
    names = [
        f"consumer-{rng.randrange(100)}-{rng.randbytes(4).hex()}" for _ in range(rng.randint(1, 25 if large else 7))
    ]
    members = [_member(rng, name, list(topics), with_racks=with_racks, same=same) for name in names]
    first = {"topics": _replicas(rng, topics, with_racks=with_racks), "members": members}
    return {"kind": "groups", "rounds": [first, _next_round(rng, first, topics, with_racks=with_racks, same=same)]}


def _member(rng: random.Random, name: str, topics: list[str], *, with_racks: bool, same: bool) -> dict[str, Any]:
    return {
        "id": name,
        "instance": f"instance-{rng.randrange(10**6)}" if rng.random() < 0.2 else None,
        "topics": _subscription(rng, topics, same=same),
        "rack": rng.choice(_RACKS) if with_racks and rng.random() < 0.8 else None,
        "claims": [],
        "generation": -1,
    }


def _subscription(rng: random.Random, topics: list[str], *, same: bool) -> list[str]:
    if same:
        return list(topics)
    chosen = rng.sample(topics, rng.randint(1, len(topics)))
    return [*chosen, "nowhere"] if rng.random() < 0.05 else chosen


def _replicas(rng: random.Random, topics: dict[str, int], *, with_racks: bool) -> dict[str, list[list[str]]]:
    sides = rng.randint(1, 2) if with_racks else 0
    return {topic: [sorted(rng.sample(_RACKS, sides)) for _ in range(count)] for topic, count in topics.items()}


def _next_round(
    rng: random.Random, first: dict[str, Any], topics: dict[str, int], *, with_racks: bool, same: bool
) -> dict[str, Any]:
    topics = {topic: count + rng.choice((0, 0, 0, 1, 4)) for topic, count in topics.items()}
    if rng.random() < 0.2:
        topics[f"topic-{rng.randrange(1000, 2000)}"] = rng.randint(1, 9)
    if same and rng.random() < 0.2 and len(topics) > 1:
        same = False
    old = [dict(member) for member in first["members"] if rng.random() < 0.85] or [dict(first["members"][0])]
    for member in old:
        member["generation"] = 5 if rng.random() < 0.93 else rng.randint(3, 4)
        if rng.random() < 0.3 or same:
            member["topics"] = _subscription(rng, list(topics), same=same)
    for _ in range(rng.choice((0, 0, 1, 2))):
        name = f"consumer-{rng.randrange(100)}-{rng.randbytes(4).hex()}"
        old.append(_member(rng, name, list(topics), with_racks=with_racks, same=same))
    if rng.random() < 0.15:
        claiming = rng.choice([member for member in old if member["generation"] >= 0])
        topic = rng.choice(list(first["topics"]))
        claiming["claims"] = [[topic, rng.randrange(len(first["topics"][topic]))]]
    rng.shuffle(old)
    return {"topics": _replicas(rng, topics, with_racks=with_racks), "members": old}


def _protocol_message(rng: random.Random) -> dict[str, Any]:
    topics = [f"topic-{rng.randrange(100)}" if rng.random() < 0.9 else _name(rng) for _ in range(rng.randrange(5))]
    claims = {(topic, rng.randrange(50)) for topic in topics for _ in range(rng.randrange(5))}
    return {
        "kind": "protocol",
        "topics": topics,
        "user_data": rng.randbytes(rng.randrange(9)).hex() if rng.random() < 0.6 else None,
        "claims": [list(claim) for claim in rng.sample(sorted(claims), len(claims))],
        "generation": rng.randint(-1, 100),
        "rack": rng.choice((None, *_RACKS)),
    }


def _name(rng: random.Random) -> str:
    if rng.random() < 0.7:
        return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789.-_", k=rng.randrange(1, 40)))
    points = [rng.choice((rng.randrange(32, 0xD800), rng.randrange(0xE000, 0x11000))) for _ in range(rng.randrange(12))]
    return "".join(map(chr, points))
