"""`python -m demo.tutorial deployment | load`: what the tutorial (docs/tutorial) does by hand.

`deployment` prints the manifest of a real vLLM on the CPU, not wired yet. `load` plays the
demonstration's conversations to its pod, on and on until Ctrl-C, and tells what users see.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import islice

import aiohttp
from evictune.api.quantity import format_duration
from evictune.wiring import dump

from demo.constants import DEPLOYMENT, ENGINE, NAMESPACE, OBJECTIVE, Load, Phase
from demo.load import Client, LoadError, sequence
from demo.manifests import deployment
from demo.model import cached_model
from demo.play import REQUEST_SECONDS, measured_target
from demo.record import Arm, Outcome, numbers, percentile
from localcluster.binaries import ensure

ENDLESS = 1_000_000
"""Rounds: weeks of them."""
MEASURED_ROUNDS = 4
"""So many rounds, and the line that turns tokens into time is known; the first reads documents."""
RECENT_ROUNDS = 3


class TutorialError(RuntimeError):
    """There is no engine to send anything to; the message says what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "deployment":
            # As `evictune wire` writes it, so that a diff shows what is added and nothing else.
            print(dump(deployment(cached_model())), end="")
        else:
            asyncio.run(_play(endless(options.conversations), _engine_url()))
    except (LoadError, TutorialError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo.tutorial", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    commands.add_parser("deployment", help="print the engine's manifest")
    load = commands.add_parser("load", help="send requests until Ctrl-C")
    load.add_argument("--conversations", type=int, choices=range(1, 9), default=3)
    return parser


def endless(conversations: int) -> Load:
    """The demonstration's load without an end and without a shift."""
    return Load(phases=(Phase("all", "until Ctrl-C", conversations, ENDLESS, True),))


def _engine_url() -> str:
    """The API of the Deployment's ready pod, as kubectl tells. Raises TutorialError."""
    selected = ("-n", NAMESPACE, "-l", f"app={DEPLOYMENT}", "-o", "json")
    asked = [str(ensure("kubectl")), "get", "pods", *selected]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TutorialError(f"{done.stderr.strip()}\nIs KUBECONFIG set?")
    for pod in json.loads(done.stdout)["items"]:
        containers = pod["status"].get("containerStatuses", ())
        if any(each["ready"] for each in containers) and "deletionTimestamp" not in pod["metadata"]:
            return f"http://{pod['status']['podIP']}:{ENGINE.port}"
    raise TutorialError(f"no pod of Deployment {DEPLOYMENT} is ready: kubectl get pods -n demo")


async def _play(load: Load, url: str) -> None:
    """Tell after each round what its users saw. Raises LoadError."""
    conversations = load.phases[0].conversations
    size = conversations * (1 + load.one_shots)
    requests, outcomes = sequence(load), list[Outcome]()
    timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        client = Client(session, url)
        for number in range(1, ENDLESS + 1):
            for request in islice(requests, size):
                answer = await client.ask(request.prompt, request.output_tokens)
                outcomes.append(Outcome(request, answer))
            print(told(number, outcomes[-size * RECENT_ROUNDS :]), flush=True)
            if number == MEASURED_ROUNDS:
                print(suggestion(outcomes[size:]), flush=True)
            del outcomes[: -size * MEASURED_ROUNDS]


def told(number: int, recent: Sequence[Outcome]) -> str:
    """A line about the last requests."""
    seen = numbers(recent)
    tail = percentile([each.answer.ttft for each in recent], float(OBJECTIVE.quantile))
    lost = percentile([each.answer.uncached_tokens for each in recent], float(OBJECTIVE.quantile))
    return (
        f"round {number:3}: TTFT p50 {seen.ttft_p50 * 1000:4.0f} ms, p97 {tail * 1000:5.0f} ms; "
        f"hit ratio {seen.hit_ratio:.0%}; uncached tokens p97 {lost:,.0f}"
    )


def suggestion(outcomes: Sequence[Outcome]) -> str:
    """A threshold that fits this machine, from requests under stock LRU."""
    arm = Arm("tutorial", "the load so far", outcomes=list(outcomes))
    threshold = format_duration(measured_target(arm).threshold)
    return (
        f"On this machine {OBJECTIVE.threshold_tokens} uncached tokens take about {threshold}: "
        "a threshold to begin with."
    )


if __name__ == "__main__":
    sys.exit(main())
