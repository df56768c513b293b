#!/usr/bin/env python3
"""Wait until this broker may be restarted, as the hook that runs before a pod is stopped.

    await-safe-to-restart [--url URL] [--seconds N] [--login FOLDER]

It asks the broker's own `/safe-to-restart`: 200 when no partition would fall below its `min.insync.replicas` without
this broker. A PodDisruptionBudget does not guard a StatefulSet's roll, so the hook does. It gives up after N seconds,
so that a cluster which cannot recover can still be changed; then the broker is stopped all the same.

Exit code: always 0; what was found is on standard output.
"""

from __future__ import annotations

import argparse
import sys
import time
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path

URL = "http://localhost:9404/safe-to-restart"
SECONDS = 60.0
PAUSE_S = 0.5
ANSWER_S = 5.0


def authorization(folder: Path | None) -> dict[str, str]:
    """The header of a login: the folder's files `username` and `password`, as a Secret is mounted."""
    if folder is None:
        return {}
    user, password = ((folder / name).read_text(encoding="utf-8").strip() for name in ("username", "password"))
    return {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}


def answer(url: str, headers: dict[str, str]) -> tuple[bool, str]:
    """Whether the broker says yes, and its words. One that does not answer is not in service, and one without this
    probe cannot be asked: yes."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=ANSWER_S) as found:
            return True, found.read().decode(errors="replace").strip()
    except urllib.error.HTTPError as refusal:
        return refusal.code == 404, refusal.read().decode(errors="replace").strip() or str(refusal)
    except OSError as reason:
        return True, f"{url} does not answer: {reason}"


def await_safe(url: str, seconds: float, headers: dict[str, str] | None = None) -> str:
    """Ask until the broker says yes, or the time is over; the last words."""
    end_s = time.monotonic() + seconds
    while True:
        is_safe, words = answer(url, headers or {})
        if is_safe:
            return f"safe to restart: {words}"
        if time.monotonic() >= end_s:
            return f"not safe to restart after {seconds:g} s, stopping all the same: {words}"
        time.sleep(PAUSE_S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default=URL)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--login", type=Path, help="a folder with the files username and password")
    given = parser.parse_args()
    print(await_safe(given.url, given.seconds, authorization(given.login)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
