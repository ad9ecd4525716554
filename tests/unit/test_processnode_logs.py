"""Serving logs: what part is sent, how a follower ends, and to whom."""

from __future__ import annotations

import socket
import ssl
import threading
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcluster.pki import Authority
from localcluster.processnode.logserver import ContainerLog, LogServer, read_log
from tests.support.local_http import opened


def log(directory: Path, text: str, *growing: bool) -> ContainerLog:
    """A log that answers whether it may still grow with each of `growing` in turn, then no."""
    path = directory / "main.log"
    path.write_text(text)
    answers = iter(growing)
    return ContainerLog(path, lambda: next(answers, False))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, b"one\ntwo\nthree"),
        ({"tailLines": "2"}, b"two\nthree"),
        ({"tailLines": "0"}, b""),
        ({"tailLines": "9"}, b"one\ntwo\nthree"),
        ({"limitBytes": "5"}, b"one\nt"),
        ({"tailLines": "1", "limitBytes": "2"}, b"th"),
        ({"follow": "false"}, b"one\ntwo\nthree"),
    ],
)
def test_what_is_sent(tmp_path: Path, options: dict[str, str], expected: bytes) -> None:
    assert b"".join(read_log(log(tmp_path, "one\ntwo\nthree"), options)) == expected


def test_a_follower_gets_the_last_words_and_an_end(tmp_path: Path) -> None:
    path = tmp_path / "main.log"
    path.write_text("up\n")

    def ends_now() -> bool:
        with path.open("a") as file:
            file.write("bye\n")
        return False

    pieces = read_log(ContainerLog(path, ends_now), {"follow": "true"})
    assert b"".join(pieces) == b"up\nbye\n"


class Served:
    """A log server of a cluster whose authority is `authority`."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "pki")
        self.found = log(directory, "one\ntwo\n")
        self.server = LogServer("127.0.0.1", self.authority.certificate_file, self._find)

    def _find(self, namespace: str, pod: str, container: str) -> ContainerLog | None:
        return self.found if (namespace, pod, container) == ("d", "web", "main") else None

    def get(self, path: str, certificate: tuple[Path, Path] | None) -> str:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if certificate:
            context.load_cert_chain(*certificate)
        with opened(f"https://127.0.0.1:{self.server.port}{path}", context) as response:
            return str(response.read().decode())


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.server.close()


def test_the_api_server_may_read(served: Served) -> None:
    certificate = served.authority.issue("api", "kube-apiserver")
    assert served.get("/containerLogs/d/web/main?tailLines=1", certificate) == "two\n"
    for path, status in (
        ("/containerLogs/d/web/other", 404),
        ("/pods", 404),
        ("/containerLogs/d/web/main?previous=true", 400),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            served.get(path, certificate)
        assert refused.value.code == status


def test_others_may_not(served: Served, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "other").issue("api", "kube-apiserver")
    for certificate in (None, stranger):
        with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
            served.get("/containerLogs/d/web/main", certificate)


def test_a_silent_client_does_not_keep_others_waiting(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.server.port)):
        answers: list[str] = []
        certificate = served.authority.issue("api", "kube-apiserver")
        reader = threading.Thread(
            target=lambda: answers.append(served.get("/containerLogs/d/web/main", certificate))
        )
        reader.start()
        reader.join(20)
        assert answers == ["one\ntwo\n"]
