"""Delete from a virtual environment what a broker never loads: pip, headers, tests, parts of pyarrow.

    strip_packages.py ENVIRONMENT

pyarrow without Flight, Gandiva, CUDA, the Python part of Substrait and its C++ headers still reads and writes Parquet.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

UNUSED = (
    "pip",
    "pip-*.dist-info",
    "setuptools",
    "setuptools-*.dist-info",
    "_distutils_hack",
    "distutils-precedence.pth",
    "pkg_resources",
    "*/tests",
    "*/*/tests",
    "numpy/*/include",
    "numpy/f2py",
    "pyarrow/include",
    "pyarrow/src",
    "pyarrow/includes",
    "pyarrow/**/*.pxd",
    "pyarrow/**/*.pyx",
    "pyarrow/_flight*",
    "pyarrow/_substrait*",
    "pyarrow/_cuda*",
    "pyarrow/gandiva*",
    "pyarrow/libarrow_flight*",
    "pyarrow/libarrow_python_flight*",
    "pyarrow/libgandiva*",
)
"""Patterns below `site-packages`."""


def strip(environment: Path) -> int:
    """Delete what `UNUSED` names; how many bytes that were."""
    freed = 0
    for packages in environment.glob("lib/python3*/site-packages"):
        for pattern in UNUSED:
            for found in list(packages.glob(pattern)):
                freed += size_of(found)
                shutil.rmtree(found) if found.is_dir() else found.unlink()
    return freed


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    return sum(each.lstat().st_size for each in ([path] if path.is_file() else path.rglob("*")) if each.is_file())


if __name__ == "__main__":
    print(f"{strip(Path(sys.argv[1])) / 1e6:.0f} MB were not needed")
