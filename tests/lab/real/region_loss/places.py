"""Where the regions of a run keep their tables: in directories, or in three clouds of which one is lost.

I/O: directories, versitygw and Azurite.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.stores.servers import StoreServer, azure_server, free_port, versity_server

EAST, WEST, NORTH = "east", "west", "north"
NEW_EAST = "new-east"


class Directories:
    """Two regions, each a directory of this machine.

    copies   the domains that are copies of the east, in the order in which one is made the home
    """

    copies: tuple[str, ...] = (WEST,)

    def __init__(self, folder: Path) -> None:
        self.urls = {name: str(folder / name) for name in (EAST, WEST, NEW_EAST)}

    def __enter__(self) -> Directories:
        return self

    def lose_east(self) -> None:
        shutil.rmtree(self.urls[EAST])

    def make_new_east(self) -> None:
        """Nothing: a broker makes the directory."""

    def __exit__(self, *_raised: object) -> None:
        """They stay for who looks at a run."""


class Clouds:
    """The east in a bucket of S3 (versitygw), its copies in a container of Azure (Azurite) and in a directory. The
    server of the east ends with all that it has, and a new one, which has nothing, has its address later."""

    copies: tuple[str, ...] = (WEST, NORTH)

    def __init__(self, folder: Path) -> None:
        self.urls = {NORTH: str(folder / NORTH)}
        self._port, self._east, self._stack = free_port(), ExitStack(), ExitStack()

    def __enter__(self) -> Clouds:
        azure = self._stack.enter_context(azure_server())
        self._stack.callback(self._east.close)
        self._stack.callback(_restore, dict(os.environ))
        self.urls[WEST] = azure.new_root()
        os.environ.update(azure.environment)
        server = self._begin()
        os.environ.update(server.environment)
        self.urls[EAST], self.urls[NEW_EAST] = server.new_root(), server.new_root()
        return self

    def _begin(self) -> StoreServer:
        return self._east.enter_context(versity_server(port=self._port))

    def lose_east(self) -> None:
        self._east.close()

    def make_new_east(self) -> None:
        self._begin()

    def __exit__(self, *_raised: object) -> None:
        self._stack.close()


def _restore(before: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(before)
