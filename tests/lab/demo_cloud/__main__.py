"""Three brokers in one simulated bucket: a web log, a broker killed in the middle, and one screen with the verdict,
latency, requests and dollars.

    python -m tests.lab.demo_cloud --profile fast

I/O: a folder that is deleted; progress on standard error, the screen on standard output.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

from stratalog.replication.price_lists import price_book
from tests.lab.bench.lab import show
from tests.lab.bench.simulated.spans import PRICES
from tests.lab.demo_cloud.run import demo
from tests.lab.demo_cloud.screen import checks_of, screen_lines
from tests.stores.cloud.simulated import simulated_bucket
from tests.stores.servers import lacking


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 when every claim of the verdict holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", choices=PRICES, default="fast", help="how long requests take (fast)")
    parser.add_argument("--seed", type=int, default=0, help="of these times (0)")
    given = parser.parse_args(arguments)
    if reason := lacking()["versity_server"]:
        parser.exit(1, f"{reason}\n")
    logging.getLogger("stratalog").setLevel(logging.ERROR)  # the killed broker is no news here
    begun_s = time.monotonic()
    prices = price_book(PRICES[given.profile]).of_root("s3://bucket")
    assert prices is not None
    with (
        tempfile.TemporaryDirectory(prefix="demo-cloud-") as folder,
        simulated_bucket(given.seed, given.profile) as (cloud, url),
    ):
        outcome, figures = demo(cloud, url, Path(folder), show)
        checks = checks_of(outcome)
    show(f"{time.monotonic() - begun_s:.0f} s in all")
    print("\n".join(screen_lines(given.profile, checks, figures, prices)))
    return 0 if all(each.holds for each in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
