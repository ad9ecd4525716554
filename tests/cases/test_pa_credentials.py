"""Of PA's kind: who may ask. Users, tokens, certificates and secret headers, over real TLS."""

from __future__ import annotations

import base64
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest
from evictune.api.observation import Unknown, Value
from evictune.api.reasons import Reason
from evictune.api.sources import BasicAuth

from localcluster.pki import Authority
from tests.support.field_case import Scene, Seen, play
from tests.support.page_server import Answer, Asked, PageServer, serve

KV = "vllm:kv_cache_usage_perc"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"))


def server_tls(authority: Authority, *, ask: bool = False, host: str = "127.0.0.1") -> Any:
    """A server's side; ask: clients must show a certificate of the same authority."""
    certificate, key = authority.issue(f"store-{host}", "store", addresses=[host])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if ask:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.certificate_file)
    return context


async def look_at(scene: Scene, store: PageServer, **options: Any) -> Seen:
    """One look through the store at its own address."""
    scene.store.vectors.clear()
    scene.store.put(KV, "0.40")
    scene.use_store(url=store.url, **options)
    return await scene.look(after=60)


def reason_of(seen: Seen) -> str:
    """Why the source cannot be used, in words."""
    reading = seen.readings.kv_usage
    assert isinstance(reading, Unknown), reading
    assert reading.reason is Reason.SOURCE_UNAVAILABLE
    assert "\n" not in reading.message
    return reading.message


def test_the_authority_is_the_administrator_s_choice(
    authority: Authority, stranger: Authority
) -> None:
    async def scenario(scene: Scene) -> None:
        with serve(scene.store.respond, tls=server_tls(authority)) as store:
            trusted, other = str(authority.certificate_file), str(stranger.certificate_file)
            assert (await look_at(scene, store, ca_file=trusted)).readings.kv_usage == Value(0.4)
            for options in ({}, {"ca_file": other}):
                message = reason_of(await look_at(scene, store, **options))
                assert "the certificate is not trusted" in message
                assert "caFile" in message
            message = reason_of(await look_at(scene, store, ca_file="/gone/ca.crt"))
            assert "/gone/ca.crt: No such file" in message

    play(scenario)


def test_a_certificate_for_another_name_is_not_taken(authority: Authority) -> None:
    async def scenario(scene: Scene) -> None:
        context = server_tls(authority, host="metrics.example")
        with serve(scene.store.respond, tls=context) as store:
            message = reason_of(
                await look_at(scene, store, ca_file=str(authority.certificate_file))
            )
            assert "not valid for '127.0.0.1'" in message
            assert "url" in message

    play(scenario)


def test_a_store_that_asks_for_a_certificate(authority: Authority, stranger: Authority) -> None:
    certificate, key = map(str, authority.issue("operator", "evictune"))
    strange_certificate, strange_key = map(str, stranger.issue("operator", "evictune"))

    async def scenario(scene: Scene) -> None:
        ca = {"ca_file": str(authority.certificate_file)}
        with serve(scene.store.respond, tls=server_tls(authority, ask=True)) as store:
            seen = await look_at(scene, store, **ca, cert_file=certificate, key_file=key)
            assert seen.readings.kv_usage == Value(0.4)
            reason_of(await look_at(scene, store, **ca))
            pair = {"cert_file": strange_certificate, "key_file": strange_key}
            reason_of(await look_at(scene, store, **ca, **pair))
            mixed = {"cert_file": certificate, "key_file": strange_key}
            message = reason_of(await look_at(scene, store, **ca, **mixed))
            assert "key values mismatch" in message
            assert "certFile and keyFile" in message
            gone = {"cert_file": certificate, "key_file": "/gone/tls.key"}
            assert "/gone/tls.key: No such file" in reason_of(
                await look_at(scene, store, **ca, **gone)
            )

    play(scenario)


def test_a_certificate_may_be_rotated(
    authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    """The files change under the same name, as those of a mounted Secret do."""
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def install(issuer: Authority) -> None:
        for source, target in zip(
            issuer.issue("rotated", "evictune"), (certificate, key), strict=True
        ):
            target.write_bytes(source.read_bytes())

    async def scenario(scene: Scene) -> None:
        with serve(scene.store.respond, tls=server_tls(authority, ask=True)) as store:
            install(stranger)
            options = {
                "ca_file": str(authority.certificate_file),
                "cert_file": str(certificate),
                "key_file": str(key),
            }
            reason_of(await look_at(scene, store, **options))
            install(authority)
            assert (await scene.look(after=60)).readings.kv_usage == Value(0.4)

    play(scenario)


def test_a_token_is_read_anew_for_every_request(authority: Authority, tmp_path: Path) -> None:
    token = tmp_path / "token"
    valid = {"Bearer first"}

    async def scenario(scene: Scene) -> None:
        def respond(asked: Asked) -> Answer:
            if asked.headers.get("Authorization") not in valid:
                return Answer("token expired", status=401)
            return scene.store.respond(asked)

        with serve(respond, tls=server_tls(authority)) as store:
            token.write_text("first\n")
            ca = str(authority.certificate_file)
            seen = await look_at(scene, store, ca_file=ca, bearer_token_file=str(token))
            assert seen.readings.kv_usage == Value(0.4)
            valid.clear()
            valid.add("Bearer second")
            message = reason_of(await scene.look(after=60))
            assert "status 401" in message
            assert "bearerTokenFile" in message
            assert "first" not in message
            token.write_text("second\n")
            assert (await scene.look(after=60)).readings.kv_usage == Value(0.4)

    play(scenario)


@pytest.mark.parametrize("password", ["pass:word", "pässwörd ☂", "x"])
def test_a_user_and_a_password(authority: Authority, tmp_path: Path, password: str) -> None:
    file = tmp_path / "password"
    file.write_text(password + "\n", "utf-8")

    async def scenario(scene: Scene) -> None:
        def respond(asked: Asked) -> Answer:
            given = asked.headers.get("Authorization", "").removeprefix("Basic ")
            if base64.b64decode(given).decode() != f"me:{password}":
                return Answer("who are you?", status=401)
            return scene.store.respond(asked)

        with serve(respond, tls=server_tls(authority)) as store:
            basic = BasicAuth("me", str(file))
            ca = str(authority.certificate_file)
            seen = await look_at(scene, store, ca_file=ca, basic_auth=basic)
            assert seen.readings.kv_usage == Value(0.4)

    play(scenario)


def test_headers_whose_values_are_secret_come_from_files(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("one\n")

    async def scenario(scene: Scene) -> None:
        with serve(scene.store.respond) as store:
            await look_at(scene, store, header_files={"X-Api-Key": str(file)})
            file.write_text("two")
            await scene.look(after=60)
            sent = [asked.headers["X-Api-Key"] for asked in store.asked]
            assert (sent[0], sent[-1]) == ("one", "two")

    play(scenario)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"two\nlines", "☂".encode()])
@pytest.mark.parametrize("option", ["bearer_token_file", "header_files"])
def test_a_file_that_holds_no_such_thing_is_named_not_repeated(
    tmp_path: Path, content: bytes, option: str
) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    options = {option: {"X-Key": str(file)} if option == "header_files" else str(file)}

    async def scenario(scene: Scene) -> None:
        with serve(scene.store.respond) as store:
            message = reason_of(await look_at(scene, store, **options))
            assert (
                "headerFiles.X-Key" if option == "header_files" else "bearerTokenFile"
            ) in message
            assert "two" not in message
            assert store.asked == []

    play(scenario)


def test_what_a_store_repeats_of_a_credential_is_told_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    password, key = tmp_path / "password", tmp_path / "key"
    password.write_text("hush-password")
    key.write_text("hush-key")
    basic = base64.b64encode(b"me:hush-password").decode()

    async def scenario(scene: Scene) -> None:
        refusal = Answer(f"Basic {basic} with hush-password and hush-key is wrong", status=403)
        with serve(lambda asked: refusal) as store:
            options = {
                "basic_auth": BasicAuth("me", str(password)),
                "header_files": {"X-Api-Key": str(key)},
            }
            seen = await look_at(scene, store, **options)
            assert "Basic *** with *** and *** is wrong" in reason_of(seen)
            assert "hush" not in str(seen.status)

    with caplog.at_level(logging.DEBUG):
        play(scenario)
    assert "hush" not in caplog.text
    assert basic not in caplog.text


def test_nothing_is_taken_from_a_netrc_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("default login someone password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    async def scenario(scene: Scene) -> None:
        with serve(scene.store.respond) as store:
            await look_at(scene, store)
            assert all("Authorization" not in asked.headers for asked in store.asked)

    play(scenario)
