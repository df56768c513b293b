"""A neighbour of a fuzzed broker in a process of its own, until a line comes: it prints what it saw. I/O: a socket."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from tests.lab.real.fuzz.clients import Neighbour

if __name__ == "__main__":
    neighbour = Neighbour((sys.argv[1], int(sys.argv[2])), float(sys.argv[3]))
    neighbour.start()
    sys.stdin.readline()
    print(json.dumps(asdict(neighbour.finish())))
