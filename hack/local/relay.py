"""Relay of loopback ports into a network namespace: a client outside speaks to the servers inside.

A socket belongs to the network in which it was made. So this listens first, moves into the namespace then,
and what it connects from there on is inside.
"""

import asyncio
import socket
import sys
from asyncio import StreamReader, StreamWriter
from typing import Final

from hack.local.namespaces import Namespaces

_CHUNK_BYTES: Final = 64 * 1024


async def _serve(listeners: list[socket.socket]) -> None:
    servers = [await asyncio.start_server(_relay, sock=listener) for listener in listeners]
    await asyncio.gather(*(server.serve_forever() for server in servers))


async def _relay(reader: StreamReader, writer: StreamWriter) -> None:
    port = writer.get_extra_info("sockname")[1]
    try:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.transport.abort()  # nobody listens inside, which must look the same outside
        return
    try:
        await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
    except OSError:
        pass  # one side broke off; the other notices by the lines below
    finally:
        writer.transport.abort()
        inner_writer.transport.abort()


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
        await writer.drain()


def main() -> int:
    """relay HOLDER PORT...: the same ports of loopback outside and inside. It says "ready"."""
    holder, *ports = map(int, sys.argv[1:])
    listeners = [socket.create_server(("127.0.0.1", port)) for port in ports]
    Namespaces(holder).enter_network()
    print("ready", flush=True)
    asyncio.run(_serve(listeners))
    return 0


if __name__ == "__main__":
    sys.exit(main())
