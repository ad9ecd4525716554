"""`python -m demo [--short]`: play both arms, compare, and leave a report in build/demo.

Exit codes: 0 the loop was better than stock LRU; 1 it was not; 2 something did not work.
KEEP=1 in the environment leaves everything up at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from evictune.api.quantity import format_duration

from demo.constants import DEPLOYMENT, LOAD, NAMESPACE, OBJECTIVE, POLICY, SHORT_LOAD, Load
from demo.load import LoadError, encore, sequence
from demo.manifests import Target, policy
from demo.model import cached_model
from demo.narrate import GREEN, RED, Narrator
from demo.play import Play, measured_target
from demo.record import Arm
from demo.report import write_report
from demo.stage import Engine, Stage, StageError, stage
from demo.summary import Summary, summarise, text_table, write_json
from localcluster.binaries import BuildError, ensure
from localcluster.controlplane import KubectlError
from localcluster.processes import Program, ProgramFailed
from localcluster.processnode import ProcessNodeError

Facts = dict[str, Any]

FAILURES = (
    BuildError,
    KubectlError,
    LoadError,
    ProcessNodeError,
    ProgramFailed,
    StageError,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__.split("\n")[0])
    parser.add_argument("--short", action="store_true", help="the first act only")
    parser.add_argument(
        "--output", type=Path, default=Path("build/demo"), help="where the report goes"
    )
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    narrator = Narrator()
    try:
        summary = run(narrator, options.output.resolve(), SHORT_LOAD if options.short else LOAD)
    except FAILURES as error:
        narrator.say(str(error), RED)
        return 2
    except KeyboardInterrupt:
        narrator.say("Interrupted; everything that was started has been stopped.", RED)
        return 130
    return 0 if summary.better else 1


def _interrupt(number: int, frame: object) -> None:
    """SIGTERM ends the demonstration as Ctrl-C does: from the inside out."""
    raise KeyboardInterrupt


def run(narrator: Narrator, output: Path, load: Load) -> Summary:
    """The whole demonstration. Raises one of FAILURES."""
    output.mkdir(parents=True, exist_ok=True)
    narrator.chapter("evictune: stock LRU against the closed loop, on a real vLLM")
    with narrator.working("Writing a small random model, unless it is there already"):
        cached_model()
    with stage(output / "cluster", narrator) as running:
        lru, loop = Arm("lru", "stock LRU"), Arm("loop", "the loop")
        target = _play_stock(running, narrator, lru, load)
        with running.engine() as engine, running.operator(engine) as operator:
            _play_loop(running, narrator, engine, operator, loop, load, target)
            facts = _facts(running, engine, lru, loop, target)
            summary = summarise(lru, loop, target.threshold, facts)
            _conclude(narrator, summary, output)
            if os.environ.get("KEEP") == "1":
                _keep(narrator, running, engine)
    return summary


def _play_stock(running: Stage, narrator: Narrator, arm: Arm, load: Load) -> Target:
    narrator.chapter("First arm: stock LRU")
    with running.engine() as engine:
        asyncio.run(Play(arm, running, engine, narrator).run(list(sequence(load))))
    return measured_target(arm)


def _play_loop(
    running: Stage,
    narrator: Narrator,
    engine: Engine,
    operator: Program,
    arm: Arm,
    load: Load,
    target: Target,
) -> None:
    narrator.chapter("Second arm: the same requests, with evictune in the loop")
    narrator.say(
        f"kubectl apply: an EvictionPolicy, p{float(OBJECTIVE.quantile) * 100:g} of the time to "
        f"first token at most {format_duration(target.threshold)} over "
        f"{format_duration(target.window)}\n(what this machine takes for "
        f"{OBJECTIVE.threshold_tokens} uncached tokens, by the first arm), xi within "
        f"{OBJECTIVE.xi_min}..{OBJECTIVE.xi_max}"
    )
    running.apply(policy(target))
    play = Play(arm, running, engine, narrator, operator)
    asyncio.run(play.run(list(sequence(load)), list(encore(load))))


def _facts(running: Stage, engine: Engine, lru: Arm, loop: Arm, target: Target) -> Facts:
    """What else is worth knowing, and shows that nothing was restarted. Raises StageError."""
    if running.find_engine() != engine:
        raise StageError(f"the engine was restarted: it was {engine}")
    values = [sample.xi_tokens for sample in loop.samples]
    changes = [now for before, now in pairwise(values) if now != before]
    return {
        "engine_process_id": engine.process,
        "engine_restarts": engine.restarts,
        "xi_in_force": ["stock LRU", *(value or "stock LRU" for value in changes)],
        "revision_shown_by_engine": loop.samples[-1].revision,
        "revision_in_status": loop.acknowledged_revision,
        "threshold": format_duration(target.threshold),
        "window": format_duration(target.window),
        "settle": format_duration(target.settle),
        **{
            f"uncached_tokens_{arm.name}": {
                "usage_field": arm.uncached_tokens,
                "engine_counter": arm.computed_tokens,
            }
            for arm in (lru, loop)
        },
    }


def _conclude(narrator: Narrator, summary: Summary, output: Path) -> None:
    write_json(summary, output / "summary.json")
    write_report(summary, output / "report.html")
    narrator.chapter("What came of it")
    narrator.plain(text_table(summary.comparisons))
    narrator.plain("")
    for claim in summary.claims:
        narrator.say(f"{'yes' if claim.holds else 'NO '} {claim.text}", "" if claim.holds else RED)
    if summary.better:
        narrator.say("Better than stock LRU.", GREEN)
    else:
        narrator.say("NOT better than stock LRU.", RED)
    minutes, seconds = divmod(round(narrator.elapsed), 60)
    narrator.say(
        f"All this took {minutes} min {seconds} s.\n"
        f"Report: {output / 'report.html'}\nSummary: {output / 'summary.json'}"
    )


def _keep(narrator: Narrator, running: Stage, engine: Engine) -> None:
    kubectl = shlex.quote(str(ensure("kubectl")))
    evictune = f"{shlex.quote(sys.executable)} -m evictune.cli"
    narrator.chapter("KEEP=1: everything stays up until Ctrl-C. In another terminal:")
    narrator.plain(
        "\n".join(
            [
                f"  export KUBECONFIG={shlex.quote(str(running.cluster.kubeconfig))}",
                f"  {kubectl} get evp,pods -n {NAMESPACE}",
                f"  {evictune} explain {NAMESPACE}/{POLICY}",
                f"  {kubectl} describe evp {POLICY} -n {NAMESPACE}",
                f"  {kubectl} logs deployment/{DEPLOYMENT} -n {NAMESPACE} --tail 20",
                f"  {kubectl} patch evp {POLICY} -n {NAMESPACE} --type merge "
                + """-p '{"spec":{"suspend":true}}'""",
                f"  {kubectl} delete evp {POLICY} -n {NAMESPACE}   # back to stock LRU",
                f"  curl -s {engine.plugin_url}",
            ]
        )
    )
    threading.Event().wait()


if __name__ == "__main__":
    sys.exit(main())
