"""Packages that only an extra brings: what an import error means for a user. I/O: the modules that are loaded."""

from __future__ import annotations

import sys

EXTRA_OF = {
    "pyspark": "spark",
    "py4j": "spark",
    "delta": "spark",
    "deltalake": "spark",
    "pandas": "spark",
    "obstore": "cloud",
    "matplotlib": "demo",
    "rich": "demo",
    "fastavro": "schemas",
    "jsonschema": "schemas",
    "google": "schemas",
    "datafusion": "console",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "anyio": "mcp",
    "starlette": "console",
    "uvicorn": "console",
    "jinja2": "console",
    "markupsafe": "console",
}
"""The extra that brings a package, by the name under which it is imported."""

PYSPARK_MIN, PYSPARK_BELOW = (4, 2), (5, 0)


def explained(what: str, reason: ImportError) -> ImportError:
    """The error of `what`, whose import failed for this reason: a package that an extra brings is missing, or is one
    that stratalog does not work with; else the reason itself.

    >>> str(explained("strata demo", ModuleNotFoundError("", name="rich.table")))
    "strata demo needs the package rich: pip install 'stratalog[demo]'"
    """
    pyspark = sys.modules.get("pyspark")
    if pyspark is not None and (unsupported := _unsupported(str(pyspark.__version__))):
        return ImportError(unsupported)
    package = (reason.name or "").partition(".")[0]
    if package not in EXTRA_OF or not isinstance(reason, ModuleNotFoundError):
        return reason
    text = f"{what} needs the package {package}: pip install 'stratalog[{EXTRA_OF[package]}]'"
    return ImportError(text, name=reason.name)


def check_pyspark(version: str) -> None:
    """Raise ImportError for a version of pyspark with which stratalog does not work.

    >>> check_pyspark("4.2.0")
    >>> check_pyspark("4.0.1")
    Traceback (most recent call last):
    ImportError: pyspark 4.0.1 is installed, and stratalog needs at least 4.2 and below 5.0: install one of these
    """
    if unsupported := _unsupported(version):
        raise ImportError(unsupported)


def _unsupported(version: str) -> str:
    """Why this pyspark does not serve; empty when it does, and for a version that is no pair of numbers."""
    try:
        major, minor = (int(part) for part in version.split(".")[:2])
    except ValueError:
        return ""
    if PYSPARK_MIN <= (major, minor) < PYSPARK_BELOW:
        return ""
    least, below = (".".join(map(str, each)) for each in (PYSPARK_MIN, PYSPARK_BELOW))
    return (
        f"pyspark {version} is installed, and stratalog needs at least {least} and below {below}: install one of these"
    )
