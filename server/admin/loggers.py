"""The loggers of this process and their levels, by Kafka's words (KIP-412). I/O: Python's `logging`.

Source: `LoggingController`, `Log4jController`.
"""

from __future__ import annotations

import logging

from stratalog.server.admin.configs import DYNAMIC_BROKER_LOGGER_CONFIG, ConfigInForce, ConfigSynonym
from stratalog.storage.errors import InvalidConfigError

ROOT_LOGGER = "root"
LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.NOTSET + 1,
}
_OWN = "stratalog"


def logger_levels() -> list[ConfigInForce]:
    """The level in force of the root logger and of each of ours, by name."""
    names = [ROOT_LOGGER, _OWN, *(name for name in logging.root.manager.loggerDict if name.startswith(f"{_OWN}."))]
    levels = {name: _level_of(_logger(name)) for name in dict.fromkeys(names)}
    return [
        ConfigInForce(name, level, (ConfigSynonym(DYNAMIC_BROKER_LOGGER_CONFIG, name, level),))
        for name, level in levels.items()
    ]


def check_level(name: str, level: str | None) -> None:
    """InvalidConfigError for a logger that does not exist, or a word that is no level. None: the level is removed."""
    if all(name != each.name for each in logger_levels()):
        raise InvalidConfigError(f"Logger {name} does not exist!")
    if level is None and name == ROOT_LOGGER:
        raise InvalidConfigError(f"Removing the log level of the {ROOT_LOGGER} logger is not allowed")
    if level is not None and level not in LEVELS:
        raise InvalidConfigError(
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(LEVELS)}"
        )


def set_level(name: str, level: str | None) -> None:
    """Set a level that `check_level` accepts; None: that of the logger above holds."""
    _logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT_LOGGER else name)


def _level_of(logger: logging.Logger) -> str:
    """The word of the highest level that is not above the logger's."""
    number = logger.getEffectiveLevel()
    return next((word for word, level in LEVELS.items() if level <= number), "TRACE")
