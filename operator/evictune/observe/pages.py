"""Pages over HTTP: one request, a time limit on all of it, no redirects, a limit on the size."""

from __future__ import annotations

import asyncio
from functools import lru_cache

import aiohttp
from yarl import URL

MAX_BYTES = 16 * 2**20
_CONNECTIONS = 64
_CHUNK = 64 * 2**10


class PageError(Exception):
    """A page could not be read; the message names the address and the cause."""


class PageReader:
    """Reads pages; may be shared by everything in one event loop."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def read(self, url: str, timeout: float) -> str:
        """The page's text within `timeout` seconds. Raises PageError."""
        try:
            async with asyncio.timeout(timeout):
                return await self._read(url)
        except TimeoutError:
            raise PageError(f"{url} gave no answer within {timeout:g} s") from None
        except aiohttp.ClientError as error:
            raise PageError(f"{url}: {_cause(error)}") from None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _read(self, url: str) -> str:
        if self._session is None:
            # An interval is longer than servers keep connections, and a fleet has thousands.
            connector = aiohttp.TCPConnector(limit=_CONNECTIONS, force_close=True)
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(),  # the caller's counts for all of it
            )
        # A pod must not send the operator to addresses of the pod's choice.
        async with self._session.get(_parsed(url), allow_redirects=False) as response:
            if response.status != 200:
                raise PageError(f"{url} answers with status {response.status}")
            body = bytearray()
            async for chunk in response.content.iter_chunked(_CHUNK):
                body += chunk
                if len(body) > MAX_BYTES:
                    raise PageError(f"{url} is longer than {MAX_BYTES >> 20} MiB")
            return body.decode("utf-8", errors="replace")


# Every pod's address is asked for again and again; to parse it takes an eighth of reading its page.
_parsed = lru_cache(maxsize=16384)(URL)


def _cause(error: aiohttp.ClientError) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect: {error.os_error.strerror or error.os_error}"
    return f"{type(error).__name__}: {error}"
