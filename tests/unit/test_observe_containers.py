"""Which container is the engine and which port has its metrics, from manifests of the field."""

from __future__ import annotations

from typing import Any

import pytest
from evictune.api.reasons import Reason
from evictune.observe.containers import ContainerError, EngineContainer, find_engine
from evictune.observe.dialects import Engine

VLLM_IMAGE = "vllm/vllm-openai:v0.11.0"


def container(name: str = "engine", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "example/serve:1", **fields}


def test_a_router_in_front_does_not_pass_for_the_engine() -> None:
    route = container(
        "route", image="example/route:1", ports=[{"name": "http", "containerPort": 8000}]
    )
    engine = container(
        image=VLLM_IMAGE,
        args=["--model=acme/owl-8b", "--port=8200", "--gpu-memory-utilization=0.9"],
        ports=[{"name": "metrics", "containerPort": 8200}],
    )
    for containers in ([route, engine], [engine, route]):
        found = find_engine(containers, None)
        assert found == EngineContainer("engine", Engine.VLLM, 8200)


@pytest.mark.parametrize(
    ("fields", "port"),
    [
        ({"command": ["vllm", "serve", "acme/owl", "--port", "8101"]}, 8101),
        ({"command": ["vllm", "serve"], "args": ["acme/owl", "--port=8102"]}, 8102),
        ({"command": ["vllm", "serve", "--port", "1", "--port=8103"]}, 8103),
        ({"args": ["python3 -m vllm.entrypoints.openai.api_server --port 8104"]}, 8104),
        (
            {
                "command": ["sh", "-c"],
                "args": ["sh /opt/up.sh lead;\n vllm serve acme/heron --port 8080; exit 1"],
            },
            8080,
        ),
        (
            {
                "command": ["vllm", "serve", "--port=$(PORT)"],
                "env": [{"name": "PORT", "value": "8105"}],
            },
            8105,
        ),
        (
            {
                "command": ["vllm", "serve", "--port=$(PORT)"],
                "env": [{"name": "PORT", "valueFrom": {"configMapKeyRef": {"name": "c"}}}],
                "ports": [{"name": "http", "containerPort": 8106}],
            },
            8106,
        ),
        (
            {
                "image": VLLM_IMAGE,
                "ports": [
                    {"name": "http", "containerPort": 8000},
                    {"name": "metrics", "containerPort": 8107},
                ],
            },
            8107,
        ),
        ({"image": "registry.example:5000/team/vllm-openai@sha256:0a"}, 8000),
        ({"image": "lmsysorg/sglang:v0.5"}, 30000),
        ({"command": ["python3", "-m", "sglang.launch_server", "--port", "31000"]}, 31000),
        ({"image": VLLM_IMAGE, "ports": [{"name": "metrics", "containerPort": 9410}]}, 8000),
        (
            {
                "image": VLLM_IMAGE,
                "ports": [
                    {"name": "metrics", "containerPort": 9410},
                    {"name": "http", "containerPort": 8107},
                ],
            },
            8107,
        ),
    ],
)
def test_the_port_of_the_metrics(fields: dict[str, Any], port: int) -> None:
    assert find_engine([container(**fields)], None).port == port


def test_the_command_tells_more_than_the_image() -> None:
    helper = container("warm-up", image=VLLM_IMAGE, command=["sleep", "infinity"])
    engine = container(image=VLLM_IMAGE, command=["vllm", "serve", "acme/owl"])
    assert find_engine([helper, engine], None).name == "engine"


def test_two_engines_need_the_user_s_word() -> None:
    pair = [container(name, command=["vllm", "serve", "acme/owl"]) for name in ("a", "b")]
    with pytest.raises(ContainerError, match=r"a, b .*spec\.containerName") as caught:
        find_engine(pair, None)
    assert caught.value.reason is Reason.AMBIGUOUS_CONTAINER
    assert find_engine(pair, "b").name == "b"


def test_no_engine_and_a_wrong_name_are_told_apart() -> None:
    with pytest.raises(ContainerError, match="none of web runs vLLM or SGLang") as caught:
        find_engine([container("web")], None)
    assert caught.value.reason is Reason.NO_ENGINE_CONTAINER
    with pytest.raises(ContainerError, match=r"spec\.containerName: 'vlm' is not among web"):
        find_engine([container("web")], "vlm")
