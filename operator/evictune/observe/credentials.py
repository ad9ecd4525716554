"""What a source's requests carry: headers, a user or a token, a certificate. Never to be told.

Files are read anew for every request, since mounted Secrets and projected tokens are rotated.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator
from pathlib import Path

import requests
from requests.auth import AuthBase

from evictune.api.source_definition import SourceDefinition, is_header_text


class CredentialError(Exception):
    """A file does not hold what its option says; the message never repeats its text."""


class Credentials(AuthBase):
    """Adds a source's headers and credentials to requests.

    Being the request's `auth`, it also keeps `requests` from looking into a ~/.netrc.
    """

    def __init__(self, definition: SourceDefinition) -> None:
        self._definition = definition

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Called by requests. Raises OSError for a file, CredentialError for what it holds."""
        for name, file in self._definition.header_files.items():
            request.headers[name] = _text(f"headerFiles.{name}", file)
        if self._definition.bearer_token_file:
            token = _text("bearerTokenFile", self._definition.bearer_token_file)
            request.headers["Authorization"] = f"Bearer {token}"
        if self._definition.basic_auth:
            request.headers["Authorization"] = f"Basic {self._basic()}"
        return request

    def check_files(self) -> None:
        """Raise OSError for a certificate or key that cannot be read: requests names none."""
        definition = self._definition
        for file in (definition.ca_file, definition.cert_file, definition.key_file):
            if file:
                Path(file).open("rb").close()

    def secrets(self) -> Iterator[str]:
        """Whatever an answer might repeat."""
        definition = self._definition
        yield from definition.headers.values()
        for name, file in definition.header_files.items():
            yield _text(f"headerFiles.{name}", file)
        if definition.bearer_token_file:
            yield _text("bearerTokenFile", definition.bearer_token_file)
        if definition.basic_auth:
            yield _text("basicAuth.passwordFile", definition.basic_auth.password_file)
            yield self._basic()

    def _basic(self) -> str:
        """RFC 7617, in UTF-8."""
        basic = self._definition.basic_auth
        assert basic is not None
        password = _text("basicAuth.passwordFile", basic.password_file, header=False)
        return base64.b64encode(f"{basic.username}:{password}".encode()).decode()


def tls_cause(error: BaseException) -> str:
    """Why a TLS handshake failed, and which option to look at."""
    inner: BaseException | None = error
    while inner is not None and not isinstance(inner, ssl.SSLError):
        inner = _inside(inner)
    if isinstance(inner, ssl.SSLCertVerificationError):
        return (
            f"the certificate is not trusted ({inner.verify_message.rstrip('.')}): check the "
            "source's url and caFile"
        )
    reason = (inner.reason or "").replace("_", " ").lower() if inner is not None else ""
    return f"TLS failed ({reason or 'no reason given'}): check the source's certFile and keyFile"


def _inside(error: BaseException) -> BaseException | None:
    """The error that this one tells of: urllib3 and requests pass it as an argument."""
    inner = error.__cause__ or error.__context__
    told = [each for each in error.args if isinstance(each, BaseException)]
    told += [each for each in (getattr(error, "reason", None),) if isinstance(each, BaseException)]
    return told[0] if told else inner


def _text(option: str, file: str, *, header: bool = True) -> str:
    """A file's text, without the line's end that editors add."""
    try:
        text = Path(file).read_text("utf-8").strip()
    except UnicodeError:
        raise CredentialError(f"{option} does not hold a text") from None
    if not text or (header and not is_header_text(text)):
        raise CredentialError(f"{option} does not hold one line that can be sent as a header")
    return text
