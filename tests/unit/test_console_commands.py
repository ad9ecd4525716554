"""The commands for people, against policies in memory: what is chosen, told, patched, refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from evictune.api.times import format_time
from evictune.console.page import cli_page
from evictune.console.parser import make_parser
from evictune.console.shapes import output_schema
from evictune.kube import ApiError

from tests.support.console_scene import ConsoleScene, record, values

FAR = "2100-01-01T00:00:00Z"
REGIME = {"name": "ReuseLost", "since": "2026-11-29T11:00:00Z", "message": "p99 is 1s"}
WANTED = {"target": values(1024), "uncapped": values(2048), "basis": "blocks were evicted"}
READY = {"type": "Ready", "status": "True", "reason": "Ready", "message": "Followed."}
PENDING = {
    "decisionID": "d-2",
    "revision": 4,
    "phase": "Settling",
    "from": values(512),
    "to": values(1024),
    "reason": "ReuseLost",
    "startTime": "2026-11-29T11:50:00Z",
}
STATUS: dict[str, Any] = {
    "regime": REGIME,
    "recommendation": WANTED,
    "applied": {"revision": 3, "decisionID": "d-1", "values": values(512)},
    "conditions": [READY | {"lastTransitionTime": "2026-11-29T11:00:00Z"}],
    "decisions": [record("d-1", "2026-11-29T11:30:00Z", "Kept", "it helped", (None, 512))],
}


@pytest.fixture
def scene(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> ConsoleScene:
    made = ConsoleScene(tmp_path, monkeypatch, capsys)
    made.policy("serving", "chat", STATUS)
    made.policy("serving", "rag")
    made.policy("other", "agents")
    made.document("serving", "chat", 512, FAR)
    return made


def names(answer: dict[str, Any]) -> list[str]:
    return [f"{each['namespace']}/{each['name']}" for each in answer["items"]]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), ["serving/chat", "serving/rag"]),
        (("-A",), ["other/agents", "serving/chat", "serving/rag"]),
        (("-n", "other"), ["other/agents"]),
        (("--context", "there"), ["other/agents"]),
        (("chat",), ["serving/chat"]),
        (("other/agents", "chat"), ["other/agents", "serving/chat"]),
        (("chat", "serving/chat"), ["serving/chat"]),
        (("agents", "-n", "other"), ["other/agents"]),
        (("-n", "empty"), []),
    ],
)
@pytest.mark.parametrize("command", ["explain", "history"])
def test_policies_are_named_as_kubectl_names_them(
    scene: ConsoleScene, command: str, arguments: tuple[str, ...], expected: list[str]
) -> None:
    assert names(scene.json(command, *arguments)) == expected


def test_a_kubeconfig_without_a_current_context_serves_the_one_given(scene: ConsoleScene) -> None:
    text = scene.kubeconfig.read_text().replace("current-context: here", "current-context: ''")
    scene.kubeconfig.write_text(text)
    assert names(scene.json("diff", "--context", "there")) == ["other/agents"]


def test_several_kubeconfigs_are_one(
    scene: ConsoleScene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = tmp_path / "second"
    context = {"name": "far", "context": {"cluster": "c", "user": "u", "namespace": "other"}}
    second.write_text(yaml.safe_dump({"contexts": [context]}))
    monkeypatch.setenv("KUBECONFIG", f"{scene.kubeconfig}:{second}:{tmp_path / 'missing'}")
    assert names(scene.json("diff")) == ["serving/chat", "serving/rag"]
    assert names(scene.json("diff", "--context", "far")) == ["other/agents"]


def test_where_to_look_may_stand_before_the_command(scene: ConsoleScene) -> None:
    assert names(scene.json("-n", "other", "diff")) == ["other/agents"]
    assert names(scene.json("-n", "other", "diff", "-n", "serving", "chat")) == ["serving/chat"]


@pytest.mark.parametrize("command", ["explain", "history", "diff", "suspend", "resume"])
@pytest.mark.parametrize("more", [(), ("--steps",)])
def test_json_has_the_shape_that_is_documented(
    scene: ConsoleScene, command: str, more: tuple[str, ...]
) -> None:
    if more and command != "history":
        more = ()
    scene.policy("serving", "moving", STATUS | {"pending": PENDING})
    scene.policy("serving", "broken", slo={"ttft": {"quantile": "2", "threshold": "fast"}})
    where = ("-A",)
    answer = scene.json(command, *more, *where)
    jsonschema.validate(answer, output_schema())
    assert answer["schema"] == f"evictune.io/{command}/v1"
    assert len(answer["items"]) == 5


def test_the_schema_refuses_another_shape(scene: ConsoleScene) -> None:
    answer = scene.json("diff", "chat")
    del answer["items"][0]["inForce"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(answer, output_schema())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("explain", "chta"), 1, "no EvictionPolicy chta in namespace serving; did you mean chat?"),
        (("explain", "agents"), 1, "did you mean other/agents?"),
        (("diff", "nothing-like-it"), 1, "; it has chat, rag"),
        (("history", "x", "-n", "empty"), 1, "it has none: -n chooses another namespace"),
        (("explain", "-A", "chat"), 2, "-A means every policy of the cluster: leave out -A or"),
        (("explain", "-A", "-n", "other"), 2, "leave out -A or -n"),
        (("explain", "serving/chat", "-n", "other"), 2, "are two namespaces: leave out one"),
        (("explain", "-n", "A B"), 2, "-n 'A B' cannot be a namespace"),
        (("explain", "Chat"), 2, "policy 'Chat': write NAMESPACE/NAME"),
        (("suspend",), 2, "name policies, or give --all"),
        (("resume", "chat", "--all"), 2, "one of the three"),
        (
            ("diff", "--context", "x"),
            1,
            "--context 'x' is not in the kubeconfig: it has here, there",
        ),
        (("explain", "--out", "json"), 2, "unrecognized"),
        (("completion", "tcsh"), 2, "choose from"),
        (("--context", "here", "run", "--config", "x"), 2, "run takes no -n and no --context"),
    ],
)
def test_a_mistake_is_one_line_with_the_remedy(
    scene: ConsoleScene, arguments: tuple[str, ...], code: int, message: str
) -> None:
    got, out, err = scene.run(*arguments)
    assert (got, out) == (code, "")
    assert message in err
    assert "Traceback" not in err


def refusing(error: ApiError, part: str = "") -> Callable[[str, str], ApiError | None]:
    return lambda method, path: error if part in path else None


FORBIDDEN = (
    'evictionpolicies.evictune.io "chat" is forbidden: User "jo" cannot get resource '
    '"evictionpolicies" in API group "evictune.io" in the namespace "serving"'
)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ApiError(401, "Unauthorized", "Unauthorized"), "they may have expired; log in anew"),
        (
            ApiError(403, "Forbidden", FORBIDDEN),
            "jo may not get evictionpolicies.evictune.io in namespace serving: ask for a role "
            "with the verb 'get' on evictionpolicies.evictune.io",
        ),
        (ApiError(0, "Unreachable", "API server: https://x: no"), "is the cluster up?"),
        (ApiError(404, "NotFound", "404 page not found"), "evictune crd | kubectl apply -f -"),
        (ApiError(500, "InternalError", "etcd is gone"), "InternalError (500): etcd is gone"),
    ],
)
@pytest.mark.parametrize("command", ["diff", "suspend"])
@pytest.mark.parametrize("chosen", ["chat", "-A"])
def test_what_the_api_server_refuses_is_explained(
    scene: ConsoleScene, command: str, chosen: str, error: ApiError, message: str
) -> None:
    scene.api.fault = refusing(error)
    code, out, err = scene.run(command, chosen)
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1


def test_who_may_not_read_the_document_is_told_what_status_says(scene: ConsoleScene) -> None:
    text = 'User "jo" cannot get resource "configmaps" in API group "" in the namespace "serving"'
    scene.api.fault = refusing(ApiError(403, "Forbidden", text), "/configmaps/")
    told = scene.text("explain", "chat")
    assert "IN FORCE  T-LRU with xi 512, qHat 60" in told
    assert "by status alone  jo may not get configmaps in namespace serving" in told
    assert scene.json("diff", "chat")["items"][0]["inForce"]["source"] == "Status"


def test_a_namespace_without_policies_is_no_error(scene: ConsoleScene) -> None:
    code, out, err = scene.run("explain", "-n", "empty")
    assert (code, out) == (0, "")
    assert err == "There is no EvictionPolicy in namespace empty.\n"


def test_diff_shows_both_and_why_it_is_not_set(scene: ConsoleScene) -> None:
    scene.policy("serving", "chat", STATUS, mode="Recommend")
    lines = [line.split() for line in scene.text("diff", "chat").splitlines()]
    assert ["IN", "FORCE", "RECOMMENDED", "WITHOUT", "BOUNDS"] in lines
    assert ["xiTokens", "512", "1024", "2048"] in lines
    (item,) = scene.json("diff", "chat")["items"]
    assert item["differs"] is True
    assert item["notSet"]["reason"] == "RecommendOnly"


@pytest.mark.parametrize(
    ("status", "spec", "reason"),
    [
        ({}, {"suspend": True}, "Suspended"),
        ({}, {"mode": "Observe"}, "ObserveOnly"),
        ({"pending": PENDING}, {}, "Settling"),
        ({"lastChangeTime": FAR}, {}, "Cooldown"),
        (
            {"conditions": [READY | {"status": "False", "reason": "Conflict"}]},
            {},
            "Conflict",
        ),
        ({"conditions": [READY | {"reason": "FleetSwitch"}]}, {}, "FleetSwitch"),
        ({}, {}, None),
    ],
)
def test_diff_names_the_first_thing_that_holds(
    scene: ConsoleScene, status: dict[str, Any], spec: dict[str, Any], reason: str | None
) -> None:
    scene.policy("serving", "chat", STATUS | status, **spec)
    held = scene.json("diff", "chat")["items"][0]["notSet"]
    assert (held and held["reason"]) == reason


def test_diff_of_what_is_as_recommended_or_unknown_is_a_line_each(scene: ConsoleScene) -> None:
    same = {"target": values(512), "uncapped": values(512), "basis": "x"}
    scene.policy("serving", "chat", STATUS | {"recommendation": same})
    assert scene.text("diff").splitlines() == [
        "serving/chat  as recommended: T-LRU with xi 512, qHat 60",
        "serving/rag  nothing is recommended: not looked at yet",
    ]


def test_suspend_says_what_follows_and_twice_changes_nothing(scene: ConsoleScene) -> None:
    told = scene.text("suspend", "chat")
    assert told.splitlines()[0] == "serving/chat suspended"
    assert "T-LRU with xi 512, qHat 60 stays in force and is renewed." in told
    assert scene.spec("serving", "chat")["suspend"] is True
    assert scene.text("suspend", "chat") == "serving/chat was suspended already: unchanged\n"
    assert len(scene.api.requests) == 1


def test_resume_says_what_follows_and_twice_changes_nothing(scene: ConsoleScene) -> None:
    scene.policy("serving", "chat", STATUS | {"pending": PENDING}, suspend=True)
    told = scene.text("resume", "chat")
    assert "Decisions are taken again, from the next tick on" in told
    assert "The change under way, to T-LRU with xi 1024, qHat 60, goes on from Settling." in told
    assert scene.spec("serving", "chat")["suspend"] is False
    assert scene.text("resume", "chat") == "serving/chat was not suspended: unchanged\n"


@pytest.mark.parametrize(
    ("status", "spec", "expires", "told"),
    [
        (STATUS, {}, FAR, "stays in force and is renewed"),
        (STATUS, {"mode": "Recommend"}, FAR, "stays in force until the knob document expires"),
        (STATUS, {}, format_time(0), "Stock LRU stays in force."),
        (STATUS | {"pending": PENDING}, {}, FAR, "stays where it is (Settling)"),
        (STATUS | {"pending": PENDING | {"phase": "Writing"}}, {}, FAR, "is given up unless"),
        ({}, {}, FAR, "No operator has looked at it yet."),
        ({}, {"slo": {}}, FAR, "It cannot be followed anyway: spec.slo.ttft"),
    ],
)
def test_what_follows_from_suspending(
    scene: ConsoleScene, status: dict[str, Any], spec: dict[str, Any], expires: str, told: str
) -> None:
    scene.policy("serving", "chat", status, **spec)
    scene.document("serving", "chat", 512, expires)
    (item,) = scene.json("suspend", "chat")["items"]
    assert told in " ".join(item["follows"])
    assert (item["suspended"], item["changed"]) == (True, True)


def test_resume_does_not_promise_what_the_fleet_switch_forbids(scene: ConsoleScene) -> None:
    held = {"conditions": [READY | {"reason": "FleetSwitch"}]}
    scene.policy("serving", "chat", STATUS | held, suspend=True)
    assert "fleet.mode holds every policy back all the same" in scene.text("resume", "chat")
    assert "→ The administrator sets fleet.mode" in scene.text("explain", "chat")


def test_who_else_sets_suspend_is_named(scene: ConsoleScene) -> None:
    body = scene.policy("serving", "chat", STATUS)
    field = {"fieldsV1": {"f:spec": {"f:suspend": {}}}}
    managers = [field | {"manager": name} for name in ("kubectl-edit", "kustomize-controller")]
    body["metadata"]["managedFields"] = managers
    scene.api.put("/apis/evictune.io/v1alpha1/namespaces/serving/evictionpolicies/chat", body)
    assert "kustomize-controller sets spec.suspend too" in scene.text("suspend", "chat")


def test_all_means_the_namespace(scene: ConsoleScene) -> None:
    assert names(scene.json("suspend", "--all")) == ["serving/chat", "serving/rag"]
    assert scene.spec("other", "agents")["suspend"] is False


def test_what_was_done_before_a_refusal_is_told(scene: ConsoleScene) -> None:
    error = ApiError(403, "Forbidden", FORBIDDEN)
    scene.api.fault = lambda method, path: (
        error if method == "PATCH" and path.endswith("/rag") else None
    )
    code, out, err = scene.run("suspend", "--all", "-o", "json")
    assert code == 1
    assert names(json.loads(out)) == ["serving/chat"]
    assert "jo may not" in err


def test_history_steps_shows_every_transition(scene: ConsoleScene) -> None:
    assert "Kept" in scene.text("history", "--steps", "chat")
    (item,) = scene.json("history", "--steps", "chat")["items"]
    assert item["transitions"] == STATUS["decisions"]


@pytest.mark.parametrize(
    ("color", "no_color", "colored"),
    [("auto", "", False), ("always", "", True), ("always", "1", True), ("never", "", False)],
)
def test_colours_only_where_wanted(
    scene: ConsoleScene,
    monkeypatch: pytest.MonkeyPatch,
    color: str,
    no_color: str,
    colored: bool,
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    for command in ("explain", "history", "diff"):
        assert ("\x1b[" in scene.text(command, "--color", color)) is colored


def test_no_escape_sequence_of_a_status_reaches_the_terminal(scene: ConsoleScene) -> None:
    evil = "\x1b]0;owned\x07 p99"
    bad = [record("d", "2026-11-29T11:30:00Z", "Kept", evil, (None, 512))]
    told = STATUS | {"regime": REGIME | {"message": evil}, "decisions": bad}
    scene.policy("serving", "chat", told)
    for command in (("explain",), ("history",), ("history", "--steps"), ("diff",)):
        assert "\x1b" not in scene.text(*command, "chat")


def test_every_command_is_on_the_page() -> None:
    page = cli_page()
    for action in make_parser()._actions:
        for name in action.choices or ():
            assert re.search(rf"\n## {name}[ \n]", page)
