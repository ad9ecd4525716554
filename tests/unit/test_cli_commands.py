"""The command line: exit codes, one line for an error, never a traceback."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from evictune import cli
from evictune.election import LeaseLostError

from tests.support.page_server import Answer, Asked, serve

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat-8b}
spec:
  template:
    spec:
      containers:
      - {name: vllm, image: vllm/vllm-openai}
"""

# Carries a command out; then on standard error its exit code, and what was loaded for it.
LOADED = """\
import sys
from evictune import cli
try:
    code = cli.main(sys.argv[1:])
except SystemExit as stop:
    code = stop.code or 0
print(code, *(name for name in sys.modules if "." not in name), file=sys.stderr)
"""


def outcome(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    try:
        code = cli.main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_crd_is_what_the_api_server_takes(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(capsys, "crd")
    assert code == 0
    assert yaml.safe_load(out)["metadata"]["name"] == "evictionpolicies.evictune.io"


def test_wire_prints_the_manifest(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(DEPLOYMENT)
    code, out, _ = outcome(capsys, "wire", str(file), "--plugin-image", "plugin:1")
    assert code == 0
    pod = yaml.safe_load(out)["spec"]["template"]["spec"]
    assert pod["initContainers"][0]["image"] == "plugin:1"


def test_wire_reads_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(DEPLOYMENT)
    with file.open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        code, out, _ = outcome(capsys, "wire", "-")
    assert code == 0
    assert "evictune-knobs-deployment-chat-8b" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "COMMAND"),
        (("fly",), 2, "invalid choice"),
        (("run",), 2, "--config"),
        (("run", "--config", "/nowhere/config.yaml"), 1, "/nowhere/config.yaml"),
        (("wire", "/nowhere/chat.yaml"), 1, "/nowhere/chat.yaml"),
        (("wire", "x", "--plugin-image", "a", "--plugin-installed"), 2, "not allowed with"),
        (("check", "--timeout", "nan"), 2, "--timeout: 'nan' is no time to wait"),
        (("check", "--timeout", "soon"), 2, "--timeout: 'soon' is no time to wait"),
        (("explain", "a/b/c"), 2, "write NAMESPACE/NAME"),
        (("explain", "../a"), 2, "write NAMESPACE/NAME"),
        (("explain", "a/b?c"), 2, "write NAMESPACE/NAME"),
        (("run", "--config", "/dev/null", "--namespace", "a b"), 2, "--namespace 'a b'"),
        (("explain", "a/b", "--kubeconfig", "/nowhere/config"), 1, "give --kubeconfig"),
    ],
)
def test_a_mistake_is_one_line_with_the_remedy(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, message: str
) -> None:
    got, out, err = outcome(capsys, *arguments)
    assert got == code
    assert message in err
    assert "Traceback" not in err
    assert out == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sources: [", "configuration"),
        ("sources: {default: {prometheus: {url: ftp://x}}}", "sources.default.prometheus.url"),
        ("metricsAddress: nowhere", "metricsAddress"),
        ("sorces: {}", "sorces"),
    ],
)
def test_a_configuration_that_cannot_be_used_names_the_field(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    code, _, err = outcome(capsys, "run", "--config", str(file))
    assert code == 1
    assert message in err
    assert "Traceback" not in err


def kubeconfig(directory: Path, server: str) -> str:
    """The path of a kubeconfig for a server that asks for nothing."""
    file = directory / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": server}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    config = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {}}]}
    file.write_text(yaml.safe_dump(config | {"current-context": "x"}))
    return str(file)


def test_explain_without_a_server_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = kubeconfig(tmp_path, "http://127.0.0.1:1")
    code, _, err = outcome(capsys, "explain", "ns/chat", "--kubeconfig", file)
    assert code == 1
    assert err.startswith("evictune: API server:")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("collection", "message"),
    [(404, "evictune crd | kubectl apply"), (200, "there is no EvictionPolicy chat in namespace")],
)
def test_explain_tells_a_missing_policy_from_a_missing_definition(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, collection: int, message: str
) -> None:
    def respond(asked: Asked) -> Answer:
        return Answer("{}", status=404 if asked.path.endswith("/chat") else collection)

    with serve(respond) as server:
        file = kubeconfig(tmp_path, server.url)
        code, _, err = outcome(capsys, "explain", "ns/chat", "--kubeconfig", file)
    assert code == 1
    assert message in err


@pytest.mark.parametrize("field", ["metricsAddress", "livenessAddress"])
def test_a_port_that_is_taken_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, field: str
) -> None:
    other = {"metricsAddress": "livenessAddress", "livenessAddress": "metricsAddress"}[field]
    file = tmp_path / "config.yaml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(f"{field}: 127.0.0.1:{port}\n{other}: 127.0.0.1:0\n")
        code, _, err = outcome(capsys, "run", "--config", str(file))
    assert code == 1
    assert err == f"evictune: {field} 127.0.0.1:{port}: Address already in use\n"


NO_TEXT = b"\xff\xfe\x00"


@pytest.mark.parametrize("content", [b"a: [", b"hello", b"[1]", NO_TEXT, b"clusters: {a: b}"])
def test_a_file_that_is_no_kubeconfig_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_bytes(content)
    code, _, err = outcome(capsys, "explain", "ns/chat", "--kubeconfig", str(file))
    assert code == 1
    assert "give --kubeconfig" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [("run", "--config"), ("wire",)])
def test_a_file_that_is_no_text_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    file = tmp_path / "file.yaml"
    file.write_bytes(NO_TEXT)
    code, _, err = outcome(capsys, *arguments, str(file))
    assert code == 1
    assert f"{file}: not a text in UTF-8" in err
    assert err.count("\n") == 1


def test_a_lost_lease_has_an_exit_code_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(**_: object) -> None:
        raise LeaseLostError("another operator holds the Lease")

    monkeypatch.setattr("evictune.run.run_operator", lose)
    code, out, err = outcome(capsys, "run", "--config", "/dev/null")
    assert (code, out) == (3, "")
    assert err == "evictune: another operator holds the Lease\n"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["wire", "FILE"], ["crd"], ["completion", "bash"]], ids=" ".join
)
def test_what_asks_no_cluster_loads_no_client(tmp_path: Path, arguments: list[str]) -> None:
    """It takes a second of a processor's time; completion starts the command for every word."""
    file = tmp_path / "chat.yaml"
    file.write_text(DEPLOYMENT)
    command = [str(file) if each == "FILE" else each for each in arguments]
    done = subprocess.run([sys.executable, "-c", LOADED, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.split()[0] == "0", done.stderr
    loaded = set(done.stderr.split()[1:])
    assert "evictune" in loaded
    assert not loaded & {"kubernetes", "kopf", "aiohttp", "requests"}
    assert arguments != ["--help"] or "yaml" not in loaded
