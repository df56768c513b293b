"""`make quick`: the quick tests in several processes, each of which reads its part of the files alone.

    python -m tests.quick --processes 2 [what else pytest is given]

pytest-xdist would have every process read all files, which takes longer than many of their tests. I/O: processes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

NOT_MARKED = "not spark and not slow and not stores and not long"


def run(part: str, more: Sequence[str]) -> int:
    """The tests of one part; its exit code. What it printed is shown when it ends."""
    command = [sys.executable, "-m", "pytest", "-q", "--quick", "--part", part, "-m", NOT_MARKED, *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(f"part {part}:\n{done.stdout}", flush=True)
    return done.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    given, more = parser.parse_known_args()
    begun_s = time.monotonic()
    with ThreadPoolExecutor(given.processes) as pool:
        parts = [f"{number}/{given.processes}" for number in range(1, given.processes + 1)]
        codes = list(pool.map(run, parts, [more] * len(parts)))
    print(f"{time.monotonic() - begun_s:.0f} s", flush=True)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
