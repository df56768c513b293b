"""How a command meets its terminal: quiet logs, errors as Kafka names them, exit codes, signals.

I/O: standard output and error, signal handlers. Exit codes: 0 done, 1 refused or failed, 130 and 143 ended by
SIGINT and SIGTERM. A traceback is shown only when STRATALOG_DEBUG is set in the environment.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TextIO

from stratalog.storage.errors import StratalogError

DONE, FAILED, INTERRUPTED, TERMINATED = 0, 1, 128 + signal.SIGINT, 128 + signal.SIGTERM
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DEBUG_VARIABLE = "STRATALOG_DEBUG"

_LINE = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"


class UsageError(Exception):
    """The command line asks for something that cannot be; the message says what and how to do better."""


class Terminated(BaseException):
    """SIGTERM arrived: as KeyboardInterrupt, so that what is under way gets its end."""


class OneLine(logging.Formatter):
    """Kafka's log line, without a traceback behind it."""

    def format(self, record: logging.LogRecord) -> str:
        kept = logging.makeLogRecord({**record.__dict__, "exc_info": None, "exc_text": None, "stack_info": None})
        return super().format(kept)


def run(job: Callable[[], int]) -> int:
    """Run a command's body and turn whatever ends it into an exit code and at most a few lines on stderr."""
    quiet_logging()
    signal.signal(signal.SIGTERM, _terminate)
    try:
        code = job()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Terminated:
        return TERMINATED
    except BrokenPipeError:
        drop_output()
        return DONE
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        complain(error_text(error))
        return FAILED


def error_text(error: Exception) -> str:
    """What the user reads: Kafka's name and the message; the type's name for what is not Kafka's.

    >>> from stratalog.storage.errors import InvalidTopicError
    >>> error_text(InvalidTopicError("Topic name is invalid"))
    'ERROR INVALID_TOPIC_EXCEPTION: Topic name is invalid'
    """
    if isinstance(error, UsageError):
        return str(error)
    name = error.name if isinstance(error, StratalogError) else type(error).__name__
    return f"ERROR {name}: {error}"


def complain(text: str) -> None:
    """A line on standard error, behind all that was printed so far. If nobody reads it, as when the terminal or
    spark-submit is gone, that is no reason not to go on."""
    try:
        sys.stdout.flush()
    except OSError:
        drop_output()
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        drop_output(sys.stderr)


def drop_output(stream: TextIO | None = None) -> None:
    """Nobody reads our output (or `stream`) any more: let the interpreter's own flush at the end go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, (stream or sys.stdout).fileno())
    os.close(nowhere)


def quiet_logging(log_file: Path | None = None) -> None:
    """Warnings go to standard error, a line each; with `log_file`, everything from INFO on goes there in full."""
    shown = logging.StreamHandler(sys.stderr)
    shown.setLevel(logging.WARNING)
    shown.setFormatter(OneLine(_LINE))
    handlers: list[logging.Handler] = [shown]
    if log_file is not None:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        kept = logging.FileHandler(log_file, encoding="utf-8")
        kept.setFormatter(logging.Formatter(_LINE))
        handlers.append(kept)
    logging.basicConfig(level=logging.WARNING if log_file is None else logging.INFO, handlers=handlers, force=True)
    # py4j reports a JVM that ends before us as an error; nobody can do anything about it.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


class Stop:
    """Notes a signal; a second one ends what is under way. Not an Event: setting one waits for a lock that the
    interrupted thread may hold."""

    def __init__(self) -> None:
        self.is_asked = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if self.is_asked:
            raise KeyboardInterrupt if number == signal.SIGINT else Terminated
        self.is_asked = True

    def listen(self) -> None:
        """Again, after what takes signals for itself: a Spark context that starts does so with Ctrl-C."""
        for number in STOP_SIGNALS:
            signal.signal(number, self)


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Ctrl-C, SIGTERM and SIGHUP are noted instead of ending what is under way; a second one ends it. An exception at
    any place is no way to end a start in order: one that comes in an import may be dropped there ("Exception ignored
    in: _get_module_lock"), and of 500 starts in which it was caught 6 ended by SIGINT all the same."""
    stop, before = Stop(), {number: signal.getsignal(number) for number in STOP_SIGNALS}
    stop.listen()
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_submitted() -> bool:
    """True when spark-submit started this process; asked here without importing pyspark, which takes a second."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise Terminated
