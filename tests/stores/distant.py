"""A relay before an object store server that makes it distant: each request takes as long as one to a cloud's store.

    python -m tests.stores.distant PORT SERVER_PORT DELAY_MS

I/O: a TCP port of the loopback. It is a process of its own: the delays of many connections are to overlap.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from tests.stores.servers import free_port, wait_until_it_listens

CHUNK_BYTES = 1 << 18


class _Direction:
    """One direction of a connection: what arrives is sent on `delay_s` later."""

    def __init__(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, delay_s: float) -> None:
        self._source, self._target, self._delay_s = source, target, delay_s
        self._sent: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def run(self) -> None:
        await asyncio.gather(self._receive(), self._send())

    async def _receive(self) -> None:
        clock, data = asyncio.get_running_loop().time, b"more"
        while data:
            try:
                data = await self._source.read(CHUNK_BYTES)
            except OSError:
                data = b""
            self._sent.put_nowait((clock() + self._delay_s, data))

    async def _send(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due_s, data = await self._sent.get()
            await asyncio.sleep(max(0.0, due_s - clock()))
            with suppress(OSError):
                if not data:
                    self._target.close()
                    return
                self._target.write(data)
                await self._target.drain()


async def _serve(port: int, server_port: int, delay_s: float) -> None:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", server_port)
        there, back = _Direction(reader, server_writer, delay_s / 2), _Direction(server_reader, writer, delay_s / 2)
        await asyncio.gather(there.run(), back.run())

    server = await asyncio.start_server(relay, "127.0.0.1", port, backlog=1_000)
    await server.serve_forever()


@contextmanager
def made_distant(server_url: str, delay_ms: int) -> Iterator[str]:
    """The URL at which the server answers `delay_ms` later."""
    port, server_port = free_port(), urlsplit(server_url).port
    command = [sys.executable, "-m", "tests.stores.distant", str(port), str(server_port), str(delay_ms)]
    process = subprocess.Popen(command)
    try:
        wait_until_it_listens(process, ("127.0.0.1", port))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) / 1_000))
