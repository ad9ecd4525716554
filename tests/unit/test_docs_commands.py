"""Every command that the documentation shows can be typed."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import tomllib
from collections.abc import Callable
from itertools import dropwhile
from typing import Any

import pytest
import yaml
from evictune.api.crd import crd
from evictune.api.parse import parse_policy
from evictune.console.parser import make_parser
from evictune_policies.replay.console.cli import make_parser as make_replay_parser

from tests.support.docs_pages import PAGES, ROOT, Command, blocks, commands

COMMANDS = [command for page in PAGES for command in commands(page)]
# Everybody's: what they take is not ours to test.
OTHERS = {".", "curl", "cp", "diff", "docker", "git", "grep", "jq", "mkdir", "mv", "promtool", "rm"}
OTHERS |= {"do", "done", "eval", "export", "for"}
POLICY: dict[str, Any] = {
    "metadata": {"name": "chat-8b", "namespace": "serving"},
    "spec": {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat-8b"},
        "slo": {"ttft": {"quantile": "0.99", "threshold": "800ms"}},
    },
}


def _evictune(command: Command) -> None:
    make_parser().parse_args(command.words[1:])


def _replay(command: Command) -> None:
    make_replay_parser().parse_args(command.words[1:])


def _kubectl(command: Command) -> None:
    if command.words[1] == "evictune":
        make_parser().parse_args(command.words[2:])
    if command.words[1] == "patch":
        assert command.words[2] == "evp"
        (flag,) = {"-p", "--patch"} & set(command.words)
        change = json.loads(command.words[command.words.index(flag) + 1])
        parse_policy(POLICY | {"spec": POLICY["spec"] | change["spec"]})
    if command.words[1] == "explain":
        _check_field(command.words[2])
    _check_files(command)


def _check_field(path: str) -> None:
    # In full: kubectl explain does not find a short name in a cluster that it knew before.
    kind, *names = path.split(".")
    assert kind == "evictionpolicies"
    field = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in names:
        field = field["properties"][name]


def _helm(command: Command) -> None:
    _check_files(command)
    values = yaml.safe_load((ROOT / "charts/evictune/values.yaml").read_text())
    for option, value in zip(command.words, command.words[1:], strict=False):
        if option == "--set":
            _check_value(values, value.partition("=")[0])


def _check_value(values: Any, path: str) -> None:
    for part in path.split("."):
        if values == {}:  # its entries are the user's, such as sources
            return
        assert part in values, path
        values = values[part]


def _check_files(command: Command) -> None:
    """A path within the repository must be there; a bare name must be the page's own matter."""
    text = command.block.page.read_text("utf-8")
    options = zip(command.words, command.words[1:], strict=False)
    named = [value for option, value in options if option in ("-f", "--filename", "--values")]
    named += [word for word in command.words if word.startswith(("charts/", "policies/"))]
    for name in named:
        if name == "-" or name.startswith("build/"):
            continue
        if "/" in name:
            assert (ROOT / name).exists(), name
        else:
            assert text.count(name) > 0


def _make(command: Command) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in command.words[1:]:
        assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), target


def _python(command: Command) -> None:
    assert command.words[1] == "-m"
    assert importlib.util.find_spec(command.words[2]), command.words[2]
    if command.words[2] in ("localcluster", "localcluster.processnode"):
        module = importlib.import_module(f"{command.words[2]}.__main__")
    elif command.words[2] == "demo.tutorial":
        module = importlib.import_module("demo.tutorial")
    else:
        return
    module._parser().parse_args(command.words[3:])


def _pip(command: Command) -> None:
    assert command.words[1] == "install"
    for requirement in command.words[2:]:
        name, _, extra = requirement.rstrip("]").partition("[")
        assert name in ("./operator", "./policies")
        project = tomllib.loads((ROOT / name / "pyproject.toml").read_text())["project"]
        assert not extra or extra in project["optional-dependencies"]


CHECKS: dict[str, Callable[[Command], None]] = {
    "evictune": _evictune,
    "evictune-replay": _replay,
    "helm": _helm,
    "kubectl": _kubectl,
    "make": _make,
    "pip": _pip,
    "python": _python,
}


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_it_can_be_typed(command: Command) -> None:
    words = tuple(dropwhile(lambda word: re.match(r"[A-Z_]+=", word), command.words))
    if words[0] not in OTHERS:
        CHECKS[words[0]](Command(command.block, words))


def test_commands_are_found() -> None:
    programs = {command.words[0] for command in COMMANDS}
    assert set(CHECKS) <= programs
    assert len(COMMANDS) > 80
    assert all(blocks(page) for page in PAGES if page.parent.name == "tutorial")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("evictune", "explian"), SystemExit),
        (("evictune-replay", "advise", "t", "--capasity", "3"), SystemExit),
        (("helm", "upgrade", "e", "charts/evictune", "--set", "image.tags=1"), AssertionError),
        (("helm", "install", "e", "charts/evictoon"), AssertionError),
        (("kubectl", "explain", "evictionpolicies.spec.sol"), KeyError),
        (("kubectl", "apply", "-f", "policies/presets/none.yaml"), AssertionError),
        (("kubectl", "patch", "evp", "x", "-p", '{"spec":{"mode":"On"}}'), ValueError),
        (("make", "dema"), AssertionError),
        (("pip", "install", "./policies[reply]"), AssertionError),
        (("pip", "install", "evictune-policies"), AssertionError),
        (("python", "-m", "demo.tutorial", "lode"), SystemExit),
    ],
)
def test_what_cannot_be_typed_is_found(words: tuple[str, ...], error: type[BaseException]) -> None:
    with pytest.raises(error):
        CHECKS[words[0]](Command(COMMANDS[0].block, words))
