"""An HTTP service of asyncio with a handler that blocks the loop: for docs/guide/python.md.

    service.py [SECONDS]

It serves itself: three clients ask for /quick all the time, one for /report now and then. A report
is compressed in the loop's thread, so that every other request waits.
"""

from __future__ import annotations

import asyncio
import sys
import time
import zlib

import tompion

#: Compresses badly, and so takes long.
ROWS = bytes(number * number % 251 for number in range(6_000_000))

request_done = tompion.Event("service:request_done", tompion.Level.INFO, path=str, status=tompion.u16, ms=float)


async def quick() -> bytes:
    """Waits a little, as for a database."""
    with tompion.span("service:query", table="orders"):
        await asyncio.sleep(0.004)
    return b"ok"


async def report() -> bytes:
    """Blocks the loop: what should run in a thread."""
    with tompion.span("service:compress", bytes=len(ROWS)):
        return zlib.compress(ROWS, 9)


HANDLERS = {"/quick": quick, "/report": report}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers one request."""
    begin = time.perf_counter()
    path = (await reader.readline()).split()[1].decode()
    with tompion.span("service:request", path=path):
        body = await HANDLERS[path]()
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()
    request_done(path, 200, (time.perf_counter() - begin) * 1000)


async def client(port: int, path: str, pause: float, end: float) -> None:
    """Asks for a path again and again."""
    while time.monotonic() < end:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        await reader.read()
        writer.close()
        await asyncio.sleep(pause)


async def main(seconds: float) -> None:
    """Serves for some seconds."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    end = time.monotonic() + seconds
    clients = [client(port, "/quick", 0.001, end) for _ in range(3)]
    await asyncio.gather(*clients, client(port, "/report", 0.4, end))
    server.close()


if __name__ == "__main__":
    tompion.record_tasks()
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 2))
