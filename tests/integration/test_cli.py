"""The command line on a real API server: as a program, as kubectl's plugin, and where it may not.

One policy is followed by an operator of its own, whose log lines are read too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from evictune.api.policy import Mode
from evictune.api.reasons import Kind, Reason
from evictune.console.shapes import output_schema

from localcluster.binaries import ensure
from localcluster.controlplane import ControlPlane
from tests.support.fake_engines import FakeDeployment
from tests.support.operator_process import OperatorProcess, eventually
from tests.support.operator_scene import Scene, install_crd, policy, remove_crd
from tests.support.page_server import Answer, serve
from tests.support.service_account import allow, service_account
from tests.support.shell import INTERRUPTED

# As long as names in practice; kubectl leaves three spaces between columns.
NAMESPACE = "serving-production"
CHAT = "llama-3-3-70b-instruct-chat"
WIDTH = 120


@pytest.fixture(scope="module")
def scene(control_plane: ControlPlane) -> Iterator[Scene]:
    install_crd(control_plane)
    made = Scene(control_plane)
    made.namespace = NAMESPACE
    with made:
        yield made


@pytest.fixture(scope="module")
def operator(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """Follows CHAT, in mode Auto, until a change was kept."""
    directory = tmp_path_factory.mktemp("operator")
    running = OperatorProcess(
        directory, scene.cluster.kubeconfig, None, "--namespace", NAMESPACE, "--log-format", "json"
    )
    with running, FakeDeployment(scene.api, NAMESPACE, CHAT, replicas=2):
        scene.create(policy(CHAT, CHAT))
        eventually(lambda: "Kept" in scene.reasons(CHAT), "a change that was kept", 180)
        yield running


class Plugins:
    """The programs as they are installed, in a directory of their own for the PATH."""

    def __init__(self, directory: Path, cluster: ControlPlane) -> None:
        starts = {
            "evictune": "from evictune.cli import main",
            "kubectl-evictune": "from evictune.cli import main",
            "kubectl_complete-evictune": "from evictune.console.completion import "
            "kubectl_complete as main",
        }
        for name, line in starts.items():
            program = directory / name
            program.write_text(f"#!{sys.executable}\nimport sys\n{line}\nsys.exit(main())\n")
            program.chmod(0o755)
        # Where COLUMNS is set, it goes before what the terminal says of itself.
        inherited = {name: text for name, text in os.environ.items() if name != "COLUMNS"}
        self.environment = {
            **inherited,
            "PATH": f"{directory}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "operator"),
            "KUBECONFIG": str(cluster.kubeconfig),
        }

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command to its end, whatever that is."""
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env=self.environment | environment,
        )

    def text(self, *command: str) -> str:
        """Standard output of what must succeed."""
        done = self.run(*command)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def plugins(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Plugins:
    return Plugins(tmp_path_factory.mktemp("programs"), scene.cluster)


@pytest.mark.parametrize("scope", [("-n", NAMESPACE), ("-A",)])
def test_the_columns_of_kubectl_get_fit(
    scene: Scene, operator: OperatorProcess, scope: tuple[str, ...]
) -> None:
    listed = scene.cluster.kubectl("get", "evp", *scope).splitlines()
    assert listed[0].split()[-7:] == ["MODE", "TTFT", "SLO", "MET", "STATE", "XI", "AGE"]
    # Columns grow with the longest value: room is left for that of every mode and regime.
    growth = max(map(len, Mode)) - len(Mode.AUTO)
    growth += max(len(each) for each in Reason if each.kind is Kind.REGIME) - len("Healthy")
    assert max(map(len, listed)) + growth <= WIDTH
    assert CHAT in listed[1]


def test_get_wide_tells_the_target_and_why_it_is_not_ready(
    scene: Scene, operator: OperatorProcess
) -> None:
    listed = scene.cluster.kubectl("get", "evp", "-n", NAMESPACE, "-o", "wide").splitlines()
    assert listed[0].split()[-3:] == ["TARGET", "SUSPENDED", "READY"]
    assert listed[1].split()[-3:] == [CHAT, "false", "Ready"]


def test_the_same_as_a_program_and_as_kubectls_plugin(
    plugins: Plugins, operator: OperatorProcess
) -> None:
    kubectl = str(ensure("kubectl"))
    arguments = ("history", CHAT, "-n", NAMESPACE, "-o", "json")
    assert plugins.text("evictune", *arguments) == plugins.text(kubectl, "evictune", *arguments)
    wrong = plugins.run(kubectl, "evictune", "explain", "nobody", "-n", NAMESPACE)
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("kubectl evictune: there is no EvictionPolicy nobody in")
    assert CHAT in wrong.stderr


def test_every_answer_in_json_has_its_shape(plugins: Plugins, operator: OperatorProcess) -> None:
    for command in (("explain",), ("history", "--steps"), ("diff",)):
        answer = json.loads(plugins.text("evictune", *command, "-n", NAMESPACE, "-o", "json"))
        jsonschema.validate(answer, output_schema())
        assert [each["name"] for each in answer["items"]] == [CHAT]


def test_history_tells_the_verdict(plugins: Plugins, operator: OperatorProcess) -> None:
    header, *lines = plugins.text("evictune", "history", f"{NAMESPACE}/{CHAT}").splitlines()
    assert header.split() == ["WHEN", "CHANGE", "VERDICT", "IN", "WORDS"]
    latest = [line for line in lines if line[:1].strip()][-1]  # words go on below
    assert latest[header.index("VERDICT") :].startswith("Kept")


def test_suspend_and_resume_are_followed(
    plugins: Plugins, scene: Scene, operator: OperatorProcess
) -> None:
    name = f"{NAMESPACE}/{CHAT}"
    assert "stays in force and is renewed" in plugins.text("evictune", "suspend", name)
    eventually(lambda: scene.condition(CHAT, "Ready")[1] == "Suspended", "suspended", 60)
    assert "unchanged" in plugins.text("evictune", "suspend", name)
    assert "from the next tick on" in plugins.text("evictune", "resume", name)
    eventually(lambda: scene.condition(CHAT, "Ready")[1] == "Ready", "followed again", 60)
    managers = {each["manager"] for each in scene.get(CHAT)["metadata"]["managedFields"]}
    assert "evictune-cli" in managers


def test_a_decision_is_one_line_that_can_be_searched_for(
    scene: Scene, operator: OperatorProcess
) -> None:
    lines = [json.loads(line) for line in operator.log.read_text().splitlines()]
    kept = [each for each in lines if each.get("reason") == "Kept"]
    assert len(kept) == 1
    change = [each for each in lines if each.get("decision_id") == kept[0]["decision_id"]]
    assert [each["reason"] for each in change] == ["Intended", "Written", "Acknowledged", "Kept"]
    assert {(each["namespace"], each["policy"]) for each in change} == {(NAMESPACE, CHAT)}
    assert kept[0]["to"]["xi_tokens"] == scene.status(CHAT)["applied"]["values"]["xiTokens"]


def test_words_are_completed_in_bash_and_by_kubectl(
    plugins: Plugins, operator: OperatorProcess
) -> None:
    kubectl = str(ensure("kubectl"))
    cases = (
        (("expl",), ["explain"]),
        (("explain", "-n", NAMESPACE, "lla"), [CHAT]),
        (("diff", f"{NAMESPACE}/"), [f"{NAMESPACE}/{CHAT}"]),
        (("completion", ""), ["bash", "zsh", "fish"]),
        (("history", "--ste"), ["--steps"]),
    )
    for words, expected in cases:
        told = plugins.text(kubectl, "__complete", "evictune", *words).splitlines()
        assert told[: told.index(":4")] == expected
    script = (
        'eval "$(evictune completion bash)"; COMP_LINE="evictune explain -n '
        f'{NAMESPACE} lla"; COMP_POINT=${{#COMP_LINE}}; COMP_TYPE=9; '
        '_python_argcomplete evictune; echo "${COMPREPLY[@]}"'
    )
    assert plugins.text("bash", "-c", script).strip() == CHAT


@pytest.mark.parametrize(
    ("verbs", "command", "missing"),
    [
        ("list", ("explain", CHAT), "may not get evictionpolicies.evictune.io"),
        ("get", ("explain",), "may not list evictionpolicies.evictune.io"),
        ("get,list", ("suspend", CHAT), "may not patch evictionpolicies.evictune.io"),
    ],
)
def test_what_is_forbidden_names_the_verb_and_the_resource(
    plugins: Plugins,
    scene: Scene,
    operator: OperatorProcess,
    tmp_path: Path,
    verbs: str,
    command: tuple[str, ...],
    missing: str,
) -> None:
    name = f"may-{verbs.replace(',', '-')}"
    file = service_account(scene.cluster, NAMESPACE, name, tmp_path)
    allow(scene.cluster, NAMESPACE, name, verbs, "evictionpolicies.evictune.io")
    where = ("-n", NAMESPACE, "--kubeconfig", str(file))
    eventually(
        lambda: missing in plugins.run("evictune", *command, *where).stderr, missing, seconds=30
    )
    told = plugins.run("evictune", *command, *where)
    assert told.returncode == 1
    assert told.stderr.count("\n") == 1


def test_credentials_that_are_no_longer_accepted(
    plugins: Plugins, scene: Scene, tmp_path: Path
) -> None:
    file = service_account(scene.cluster, NAMESPACE, "expired", tmp_path)
    text = file.read_text()
    token = text.split("token: ")[1].split()[0]
    file.write_text(text.replace(token, token[:-8] + "AAAAAAAA"))
    told = plugins.run("evictune", "explain", "--kubeconfig", str(file))
    assert told.returncode == 1
    assert "does not accept the credentials: they may have expired" in told.stderr
    assert told.stderr.count("\n") == 1


def test_a_reader_that_goes_away_is_no_error(plugins: Plugins) -> None:
    done = plugins.run("bash", "-c", "set -o pipefail; evictune crd | head -1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("apiVersion")


def test_ctrl_c_ends_without_a_word(plugins: Plugins, tmp_path: Path) -> None:
    with serve(lambda asked: Answer(hang=True)) as silent:
        file = tmp_path / "kubeconfig"
        file.write_text(_kubeconfig(silent.url))
        waiting = subprocess.Popen(
            ["evictune", "explain", "--kubeconfig", str(file)],
            env=plugins.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        eventually(lambda: silent.asked, "a request under way", 60)
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate(timeout=30)
    assert waiting.returncode in INTERRUPTED
    assert (out, err) == ("", "")


def test_no_cluster_is_told_with_its_address(plugins: Plugins, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(_kubeconfig("https://127.0.0.1:1"))
    told = plugins.run("evictune", "explain", "--kubeconfig", str(file))
    assert told.returncode == 1
    assert told.stderr == (
        "evictune: API server: https://127.0.0.1:1: Connection refused; is the cluster up? "
        "Choose another with --context or --kubeconfig\n"
    )


def test_a_terminal_gets_its_width_and_colours(plugins: Plugins, operator: OperatorProcess) -> None:
    """`script` gives the command a terminal."""
    lines = {}
    for width in (60, 80, 120):
        told = plugins.run(
            "script",
            "-qec",
            f"stty cols {width}; evictune explain {NAMESPACE}/{CHAT}",
            "/dev/null",
            TERM="xterm",
            NO_COLOR="",
        ).stdout
        assert "\x1b[" in told
        lines[width] = _without_colour(told).splitlines()
    for width in (80, 120):
        assert max(map(len, lines[width])) <= width
    assert len(lines[60]) > len(lines[120])
    command = f"NO_COLOR=1 evictune explain {NAMESPACE}/{CHAT}"
    assert "\x1b[" not in plugins.run("script", "-qec", command, "/dev/null").stdout


def test_where_the_definition_is_missing_the_command_says_how(
    plugins: Plugins, scene: Scene, operator: OperatorProcess
) -> None:
    """The last test of this file: every policy goes with the definition."""
    remove_crd(scene.cluster)
    try:
        for command in (("explain",), ("explain", CHAT), ("suspend", "-A")):
            told = plugins.run("evictune", *command)
            assert told.returncode == 1
            assert told.stderr.endswith("evictune crd | kubectl apply -f -\n")
    finally:
        time.sleep(1)
        install_crd(scene.cluster)


def _without_colour(text: str) -> str:
    for code in ("0", "1", "1;36", "31", "32", "33"):
        text = text.replace(f"\x1b[{code}m", "")
    return text.replace("\r", "")


def _kubeconfig(server: str) -> str:
    return json.dumps(
        {
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )
