"""Every client against both forms of a cluster.

    python -m tests.lab.foreign.run --report docs                       # make clients
    python -m tests.lab.foreign.run --report docs --only java           # a part, and its rows
    python -m tests.lab.foreign.run --only python --match "groups" --times 10

Exit code 1 when a check fails; the brokers' logs are then in the folder of --keep.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.lab.foreign.checks import Check, Outcome, Suite, outcome_of
from tests.lab.foreign.report import failures, write_report
from tests.lab.foreign.served import Form, Served

SUITES = {
    "python": "tests.lab.foreign.python.suite",
    "security": "tests.lab.foreign.security.suite",
    "java": "tests.lab.foreign.java.suite",
    "go": "tests.lab.foreign.go.suite",
    "node": "tests.lab.foreign.node.suite",
    "rust": "tests.lab.foreign.rust.suite",
    "spark": "tests.lab.foreign.spark.suite",
}
"""Modules with a function `suite() -> Suite`, by the name that --only takes."""
TRACEBACK = "Traceback (most recent call last)"
BROKERS_LOGS = Check("the brokers", "no traceback in the brokers' logs after all of this", lambda served: None)


def run_against(form: Form, suite: Suite, times: int, keep: Path) -> Iterator[Outcome]:
    """Start a cluster, run the checks that fit, `times` times over, and look into its logs."""
    with Served(form, suite.settings, keep=keep, listeners=suite.listeners) as served:
        has_failed = False
        for _ in range(times):
            for check in suite.checks:
                if form in check.forms:
                    outcome = outcome_of(check, served)
                    has_failed |= outcome.error is not None
                    yield outcome
        found = tracebacks(served)
        yield Outcome(BROKERS_LOGS, form, 0.0, found[0] if found else None, "\n".join(found))
        if has_failed or found:
            served.keep_logs()


def tracebacks(served: Served) -> list[str]:
    """Where a broker's logs have one."""
    texts = {file.name: file.read_text(errors="replace") for file in served.log_files()}
    return [f"{text.count(TRACEBACK)} in {name}" for name, text in texts.items() if TRACEBACK in text]


def chosen(suite: Suite, match: str) -> Suite:
    found = tuple(check for check in suite.checks if match in f"{check.client}: {check.does}")
    return replace(suite, checks=found)


def say(outcome: Outcome) -> None:
    result = f"FAILED {outcome.error}\n{outcome.details}" if outcome.error else "passed"
    print(
        f"{outcome.form} {outcome.check.client}: {outcome.check.does}: {result} ({outcome.seconds:.1f} s)", flush=True
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SUITES, help="one kind of clients; all if not given")
    parser.add_argument("--form", choices=[*Form], help="one form of the cluster; both if not given")
    parser.add_argument("--match", default="", help="only checks with this text in `client: what it does`")
    parser.add_argument("--times", type=int, default=1, help="how often, against each cluster")
    parser.add_argument(
        "--report", type=Path, help="the folder of CLIENTS.md; no report if not given. A part changes its rows"
    )
    default = Path(tempfile.gettempdir()) / "foreign-clients"
    parser.add_argument("--keep", type=Path, default=default, help="for the brokers' logs when a check fails")
    given = parser.parse_args(arguments)
    shutil.rmtree(given.keep, ignore_errors=True)
    outcomes: list[Outcome] = []
    versions: dict[str, str] = {}
    is_whole = not (given.only or given.form or given.match)
    for name in [given.only] if given.only else SUITES:
        suite = chosen(importlib.import_module(SUITES[name]).suite(), given.match)
        versions |= suite.versions
        if suite.left_out:
            is_whole = False
            print(f"{name}: {suite.left_out}", flush=True)
        if not suite.checks:
            continue
        try:
            for form in [Form(given.form)] if given.form else Form:
                for outcome in run_against(form, suite, given.times, given.keep / name):
                    say(outcome)
                    outcomes.append(outcome)
        finally:
            suite.close()
    if given.report:
        write_report(given.report, outcomes, versions, is_whole=is_whole)
    failed = failures(outcomes)
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} passed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a client that hangs has threads that do not end
