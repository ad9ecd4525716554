"""What the API server's process sees of serving: requests in flight, answers, and readiness.

An ASGI wrapper around the whole application, so that nothing of vLLM's request path is touched. A
request is in flight from its arrival until its answer is sent to the end, tokenizing and streaming
included. While the engine is leaving, answers close their connection: a client that keeps one open
would else send its next request here, whatever the Service says by then.
"""

import time
from collections.abc import Awaitable, Callable, MutableMapping
from functools import wraps
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Message, Receive, Send], Awaitable[None]]

_SEEN = "evictune"
# Last parts of the paths that the model answers. Others (tokenize, render, cancel, ping) are
# answered without it: they would vouch for an engine that hangs.
_MODEL = frozenset(
    [
        "batch",
        "classify",
        "completions",
        "embed",
        "embeddings",
        "generate",
        "generative_scoring",
        "invocations",
        "messages",
        "pooling",
        "rerank",
        "responses",
        "score",
        "transcriptions",
        "translations",
    ]
)
_LOOKS = ("GET", "HEAD", "OPTIONS")  # probes, scrapes and pages hold no KV block


class Traffic:
    """Counts on the event loop's thread; read from any.

    Args:
        serving: Called once the application starts up, which vLLM lets it when the engine is ready.
        clock: Seconds, monotonic.

    Attributes:
        in_flight: Requests whose answers are not sent to the end.
        served_seconds: Time between the first and the last complete answer of the model; None while
            there is none.
        leaving: Set while the engine is being ended on request.
    """

    def __init__(
        self, serving: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._serving = serving
        self._clock = clock
        self._first: float | None = None
        self.in_flight = 0
        self.served_seconds: float | None = None
        self.leaving = False

    def around(self, stock: Application) -> Application:
        """The application's ``__call__``, watched."""

        @wraps(stock)
        async def call(app: Any, scope: Message, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                self._serving()
            elif _SEEN not in scope:  # else it is an application within an application
                scope[_SEEN] = True
                if scope.get("method") not in _LOOKS:
                    await self._request(stock, app, scope, receive, send)
                    return
            await stock(app, scope, receive, send)

        return call

    async def _request(
        self, stock: Application, app: Any, scope: Message, receive: Receive, send: Send
    ) -> None:
        by_model = scope.get("path", "").rpartition("/")[2] in _MODEL
        good = False

        async def watched(message: Message) -> None:
            nonlocal good
            if message["type"] == "http.response.start":
                good = by_model and message["status"] < 400
                if self.leaving:
                    closing = (b"connection", b"close")
                    message = {**message, "headers": [*message.get("headers", ()), closing]}
            await send(message)
            if good and message["type"] == "http.response.body" and not message.get("more_body"):
                self._answered()

        self.in_flight += 1
        try:
            await stock(app, scope, receive, watched)
        finally:
            self.in_flight -= 1

    def _answered(self) -> None:
        now = self._clock()
        if self._first is None:
            self._first = now
        self.served_seconds = now - self._first
