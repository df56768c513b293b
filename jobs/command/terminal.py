"""The terminal of a command: quiet logs, errors by Kafka's names, exit codes, signals.

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
from stratalog.storage.extras import explained
from stratalog.storage.log_lines import JsonLines

DONE, FAILED, INTERRUPTED, TERMINATED = 0, 1, 128 + signal.SIGINT, 128 + signal.SIGTERM
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DEBUG_VARIABLE = "STRATALOG_DEBUG"

_LINE = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"


class UsageError(Exception):
    """The command line cannot be executed; the message names the mistake and what to give instead."""


class Terminated(BaseException):
    """SIGTERM arrived. A BaseException, as KeyboardInterrupt is, so that nothing catches it."""


class OneLine(logging.Formatter):
    """Kafka's log line, without a traceback behind it."""

    def format(self, record: logging.LogRecord) -> str:
        kept = logging.makeLogRecord({**record.__dict__, "exc_info": None, "exc_text": None, "stack_info": None})
        return super().format(kept)


def run(job: Callable[[], int]) -> int:
    """Run a command's body; its exit code, and an error as a few lines on standard error."""
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
    """An error for the user: Kafka's name and the message; the type's name for an error that Kafka does not have.

    >>> from stratalog.storage.errors import InvalidTopicError
    >>> error_text(InvalidTopicError("Topic name is invalid"))
    'ERROR INVALID_TOPIC_EXCEPTION: Topic name is invalid'
    """
    if isinstance(error, ImportError):
        error = explained("this command", error)
    if isinstance(error, UsageError):
        return str(error)
    name = error.name if isinstance(error, StratalogError) else type(error).__name__
    return f"ERROR {name}: {error}"


def complain(text: str) -> None:
    """Print a line to standard error, after all that was printed so far. A closed standard error, as when the terminal
    or spark-submit has ended, is ignored."""
    try:
        sys.stdout.flush()
    except OSError:
        drop_output()
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        drop_output(sys.stderr)


def drop_output(stream: TextIO | None = None) -> None:
    """Redirect standard output (or `stream`), which is closed, lest the interpreter's flush at exit fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, (stream or sys.stdout).fileno())
    os.close(nowhere)


def quiet_logging(log_file: Path | None = None, *, as_json: bool = False) -> None:
    """Log warnings to standard error, a line each; with `log_file`, everything from INFO on to that file in full.

    as_json  of the file, each line is a JSON object
    """
    shown = logging.StreamHandler(sys.stderr)
    shown.setLevel(logging.WARNING)
    shown.setFormatter(OneLine(_LINE))
    handlers: list[logging.Handler] = [shown]
    if log_file is not None:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        kept = logging.FileHandler(log_file, encoding="utf-8")
        kept.setFormatter(JsonLines() if as_json else logging.Formatter(_LINE))
        handlers.append(kept)
    logging.basicConfig(level=logging.WARNING if log_file is None else logging.INFO, handlers=handlers, force=True)
    # py4j logs an error when the JVM ends before this process, which is no fault.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


class Stop:
    """A signal handler that records the first signal and raises at the second. Not an Event: setting one waits for a
    lock that the interrupted thread may hold."""

    def __init__(self) -> None:
        self.is_asked = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if self.is_asked:
            raise KeyboardInterrupt if number == signal.SIGINT else Terminated
        self.is_asked = True

    def listen(self) -> None:
        """Install the handlers, again after a Spark context has started: it replaces that of Ctrl-C."""
        for number in STOP_SIGNALS:
            signal.signal(number, self)


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Record Ctrl-C, SIGTERM and SIGHUP instead of raising; a second one raises. An exception that may be raised
    anywhere cannot end a start in order: Python drops one that comes within an import ("Exception ignored in:
    _get_module_lock")."""
    stop, before = Stop(), {number: signal.getsignal(number) for number in STOP_SIGNALS}
    stop.listen()
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_submitted() -> bool:
    """True when spark-submit started this process. This check needs no pyspark, whose import is slow."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise Terminated
