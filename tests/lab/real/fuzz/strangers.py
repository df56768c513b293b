"""Clients that ask for much, over several connections, until the standard input ends. I/O: sockets.

python -m tests.lab.real.fuzz.strangers HOST PORT SEED CONNECTIONS FRAMES
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import threading
from collections.abc import Iterator
from itertools import islice

from tests.lab.real.fuzz.clients import BadClient, served_by
from tests.lab.real.fuzz.expensive_frames import ExpensiveFrames

WAIT_S = 10.0
"""Limit of the wait for one answer; then the client leaves, and comes again."""


def endless(frames: list[bytes], seed: int, is_over: threading.Event) -> Iterator[bytes]:
    """Any of the frames, again and again."""
    chance = random.Random(seed)
    for _ in itertools.count():
        if is_over.is_set():
            return
        yield chance.choice(frames)


def main() -> None:
    host, port, seed, connections, count = sys.argv[1], *map(int, sys.argv[2:6])
    frames = list(islice(ExpensiveFrames(seed, served_by((host, port))), count))
    is_over = threading.Event()
    clients = [
        BadClient((host, port), endless(frames, seed + number, is_over), WAIT_S) for number in range(connections)
    ]
    print("ready", flush=True)
    sys.stdin.readline()
    for client in clients:
        client.start()
    sys.stdin.readline()
    is_over.set()
    for client in clients:
        client.join(2 * WAIT_S)
    totals = {
        "answered": sum(client.answered for client in clients),
        "left": sum(client.left for client in clients),
        "closed": sum(client.closed.total() for client in clients),
        "failures": [repr(client.failure) for client in clients if client.failure is not None],
    }
    print(json.dumps(totals), flush=True)


if __name__ == "__main__":
    main()
