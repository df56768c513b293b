"""The environment of a local master's JVM, for faster starts of its Python processes. I/O: files in one folder.

A Python process of Spark's imports pyspark from an archive, which Python compiles again each time, and a streaming
query starts one for its planner. docs/measurements.md has what each of the two costs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from stratalog.replication.fast_start.linked_home import linked_home
from stratalog.replication.fast_start.planners import planner_launcher

FAST_START = "spark.stratalog.fast.start"
"""The Spark setting, `true` (default) or `false`, read when a session is started."""


def own_folder() -> Path:
    """This user's folder for what a process needs while it runs."""
    return Path(tempfile.gettempdir()).resolve() / f"stratalog-{os.getuid()}"


def fast_python() -> str | None:
    """A Python for the processes of the format `stratalog` in a local session, which is this one and starts faster;
    None where the system has no means for it. It stays until this process ends."""
    return planner_launcher(_planners_folder(own_folder()), {})


def _planners_folder(folder: Path) -> Path:
    return folder / f"planners-{os.getpid()}"


def fast_environment(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables to add to `environment`; what the user has set (`SPARK_HOME`, `PYSPARK_PYTHON`) stays.

    folder   this user's own, for links and a socket
    """
    result = {}
    if (home := linked_home(folder)) is not None:
        result["SPARK_HOME"] = home
    if "PYSPARK_PYTHON" not in os.environ:
        launcher = planner_launcher(_planners_folder(folder), {**environment, **result})
        if launcher is not None:
            result |= {"PYSPARK_PYTHON": launcher, "PYSPARK_DRIVER_PYTHON": launcher}
    return result
