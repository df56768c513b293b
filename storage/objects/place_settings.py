"""The settings of object stores by place, from a file that is read again when it changes. I/O: that file.

`STRATALOG_STORAGE_SETTINGS` names it, for brokers, clients and tools alike, and for the processes that they start; a
broker's `stratalog.storage.settings.file` sets it. So each storage domain, and each root, may have other credentials,
another endpoint or region than the metadata root; none of that is ever in the metadata log.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from stratalog.storage import cadence
from stratalog.storage.clock import Clock, SystemClock
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.store_settings import StoreSettings, nearest, settings_of_places

VARIABLE = "STRATALOG_STORAGE_SETTINGS"
"""The environment variable that names the file."""
_LOG = line_logger("stratalog.storage")


class SettingsFile:
    """The settings of all places, as of the file's newest content that could be read. Thread-safe."""

    def __init__(self, path: str, clock: Clock) -> None:
        """InvalidConfigError for a file that cannot be read, or says what no setting is."""
        self._path = Path(path)
        self._clock = clock
        self._lock = threading.Lock()
        self._seen = self._stamp()
        self._places = self._read()
        self._checked_ms = clock.monotonic_ms()
        self.generation = 0
        """Increased with each content that differs."""

    def of(self, url: str) -> StoreSettings:
        """Those of the innermost place around `url`."""
        return nearest(self._places, url)

    def refresh(self, *, at_once: bool = False) -> int:
        """The generation, after the file was looked at, some seconds after the last time, or `at_once`. What cannot be
        read changes nothing: the log says so."""
        now_ms = self._clock.monotonic_ms()
        if not at_once and now_ms - self._checked_ms < cadence.SETTINGS_RECHECK.ms:
            return self.generation
        with self._lock:
            self._checked_ms = now_ms
            try:
                stamp = self._stamp()
                if stamp != self._seen:
                    self._places, self._seen = self._read(), stamp
                    self.generation += 1
            except InvalidConfigError as reason:
                _LOG.warning("the settings of object stores stay as they are: %s", reason)
        return self.generation

    def _stamp(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError as reason:
            raise InvalidConfigError(f"{self._path} cannot be read: {reason.strerror}") from reason
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> dict[str, StoreSettings]:
        try:
            return settings_of_places(self._path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as reason:
            raise InvalidConfigError(f"{self._path} cannot be read: {type(reason).__name__}") from reason
        except InvalidConfigError as reason:
            raise InvalidConfigError(f"{self._path}: {reason}") from None


_FILES: dict[str, SettingsFile] = {}
_FILES_LOCK = threading.Lock()


def use_settings_file(path: str) -> None:
    """This process, and those that it starts, read the settings of places from here; "" changes nothing.
    InvalidConfigError as of `SettingsFile`."""
    if path:
        absolute = str(Path(path).expanduser().absolute())
        os.environ[VARIABLE] = absolute
        _file_at(absolute)


def _file_at(path: str) -> SettingsFile:
    with _FILES_LOCK:
        if path not in _FILES:
            _FILES[path] = SettingsFile(path, SystemClock())
        return _FILES[path]


class PlacedSettings:
    """The settings of one place: those of the file take precedence over those that are given for all places."""

    def __init__(self, url: str, given: StoreSettings, file: SettingsFile | None = None) -> None:
        """`file`: by default the one that the environment names, if it names one. InvalidConfigError as of that."""
        named = os.environ.get(VARIABLE, "")
        self._file = file or (_file_at(named) if named else None)
        self._url = url
        self._given = given
        self._generation = 0 if self._file is None else self._file.generation
        self.current = self._found()

    def _found(self) -> StoreSettings:
        return self._given if self._file is None else self._file.of(self._url).over(self._given)

    def have_changed(self, *, at_once: bool = False) -> bool:
        """Whether `current` is another one than at the last call. `at_once`: the file is looked at now."""
        if self._file is None or self._file.refresh(at_once=at_once) == self._generation:
            return False
        self._generation, before = self._file.generation, self.current
        self.current = self._found()
        return self.current != before
