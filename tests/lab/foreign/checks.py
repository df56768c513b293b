"""A check is one thing that a client does against a cluster; its outcome is a line of docs/clients.json."""

from __future__ import annotations

import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.lab.foreign.served import Form, Served

CHECK_S_MAX = 180
"""The limit of most checks; one that takes longer counts as failed."""


@dataclass(frozen=True, slots=True)
class Check:
    """`run` does it and raises when something is wrong. `does` is the command or the call, as the report shows it.

    forms  the forms of a cluster it runs against
    s_max  its limit in seconds
    """

    client: str
    does: str
    run: Callable[[Served], None]
    forms: tuple[Form, ...] = tuple(Form)
    s_max: int = CHECK_S_MAX


@dataclass(frozen=True, slots=True)
class Suite:
    """Checks, and the version of each client by its name.

    settings   of the brokers, before `Served`'s own
    listeners  protocols by name, besides the plaintext one
    close      called when all checks have run
    left_out   why checks are missing, which another machine has
    """

    versions: Mapping[str, str]
    checks: tuple[Check, ...]
    settings: Mapping[str, object] = field(default_factory=dict)
    listeners: Mapping[str, str] = field(default_factory=dict)
    close: Callable[[], None] = lambda: None
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a check against a form. `error` is None for a check that passed, else one line of text."""

    check: Check
    form: Form
    seconds: float
    error: str | None = None
    details: str = ""


def outcome_of(check: Check, served: Served) -> Outcome:
    """Run a check in a thread of its own, so that a client that hangs does not stop the others."""
    begun = time.monotonic()
    raised: list[BaseException] = []
    thread = threading.Thread(target=_run, args=(check, served, raised), name=check.does, daemon=True)
    thread.start()
    thread.join(check.s_max)
    seconds = time.monotonic() - begun
    if thread.is_alive():
        frame = sys._current_frames().get(thread.ident or 0)
        where = "".join(traceback.format_stack(frame)) if frame else ""
        return Outcome(check, served.form, seconds, f"no end after {check.s_max} s", where)
    if not raised:
        return Outcome(check, served.form, seconds)
    (error,) = raised
    first_line = next(iter(str(error).splitlines()), "")
    details = "".join(traceback.format_exception(error))
    return Outcome(check, served.form, seconds, f"{type(error).__name__}: {first_line}", details)


def _run(check: Check, served: Served, raised: list[BaseException]) -> None:
    try:
        check.run(served)
    except BaseException as error:  # noqa: BLE001  # every failure is a row of the report
        raised.append(error)


def fresh(name: str) -> str:
    """A name that no other check uses, nor the same check when it runs again."""
    return f"{name}-{uuid.uuid4().hex[:8]}"
