"""A home for Spark whose Python workers import pyspark as it was installed, compiled. I/O: links in a folder.

Spark puts `<home>/python/lib/pyspark.zip` before everything on its workers' path. Python keeps nothing of what it
compiles from an archive, so each new process, as every streaming query's planner is, compiles it again.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home


def linked_home(folder: Path) -> str | None:
    """A home below `folder` with links to all of the installed Spark except `python`: then workers find what pip
    installed. None where the user has chosen a home, or Spark did not come with pip.
    """
    if "SPARK_HOME" in os.environ:
        return None
    installed = Path(_find_spark_home()).resolve()
    if not (installed / "__init__.py").is_file():
        return None
    home = folder / f"spark-home-{hashlib.sha256(str(installed).encode()).hexdigest()[:12]}"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (_is_own(folder) and _is_own(home)):
        return None
    for child in installed.iterdir():
        if child.is_dir() and child.name not in ("python", "__pycache__"):
            with suppress(FileExistsError):  # of an earlier session
                (home / child.name).symlink_to(child)
    return str(home)


def _is_own(directory: Path) -> bool:
    found = directory.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
