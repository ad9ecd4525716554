"""Forwards TCP connections: `python -m localcluster.forward ADDRESS:PORT TARGET:PORT`.

It stands in for kube-proxy for the one Service that pods cannot do without: the API server's. Pods
and kubelets connect to its cluster IP, port 443, which is an address of this machine's end of the
node's link; the API server itself stays on loopback.
"""

from __future__ import annotations

import asyncio
import sys

CHUNK_BYTES = 65536


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    except ConnectionError:
        pass  # either side may go away at any time; the other then sees the end
    finally:
        writer.close()


async def _serve(listen: str, target: str) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target_reader, target_writer = await asyncio.open_connection(*_address(target))
        except OSError as error:  # the API server is down: so is this connection, as it should
            print(f"{target}: {error}", file=sys.stderr, flush=True)
            writer.close()
            return
        await asyncio.gather(_copy(reader, target_writer), _copy(target_reader, writer))

    # Each node has a forwarder, and all of a cluster listen on the same address.
    server = await asyncio.start_server(connected, *_address(listen), reuse_port=True)
    async with server:
        await server.serve_forever()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2]))
