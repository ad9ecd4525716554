"""The command line's grammar and nothing else, so that completing a word loads little."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PLUGIN = "kubectl-evictune"
SHELLS = ("bash", "zsh", "fish")
BOARDS = ("fleet", "policy", "engine", "operator")

_Commands = Any  # argparse gives the type of add_subparsers() no public name.


def program_name(path: str | None = None) -> str:
    """How the command was called: `kubectl evictune` where kubectl called it as its plugin."""
    return "kubectl evictune" if Path(path or sys.argv[0]).stem == PLUGIN else "evictune"


def make_parser(program: str = "evictune") -> argparse.ArgumentParser:
    """The whole grammar. A parsed command line has its command's name as `command`."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="Tunes how vLLM evicts KV-cache blocks, against a TTFT target.",
        epilog=f"{program} COMMAND --help tells more of each.",
        allow_abbrev=False,
    )
    _where(parser, None)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for add in _COMMANDS:
        add(commands)
    return parser


def _add(commands: _Commands, name: str, text: str, more: str = "") -> argparse.ArgumentParser:
    added: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=f"{text[:1].upper()}{text[1:]}.{' ' + more if more else ''}",
        allow_abbrev=False,
    )
    return added


def _explain(commands: _Commands) -> None:
    told = _add(
        commands,
        "explain",
        "what was seen, believed and decided, and what would help",
        "It reads the policy and its ConfigMap, and nothing else.",
    )
    _policies(told)
    _printing(told)


def _history(commands: _Commands) -> None:
    told = _add(
        commands,
        "history",
        "what was changed, each with its verdict, newest first",
        "It shows what the policy's status keeps: the last 10 transitions.",
    )
    _policies(told)
    told.add_argument("--steps", action="store_true", help="every transition, as it was recorded")
    _printing(told)


def _diff(commands: _Commands) -> None:
    told = _add(
        commands,
        "diff",
        "what is recommended against what is in force",
    )
    _policies(told)
    _printing(told)


def _suspend(commands: _Commands) -> None:
    told = _add(
        commands,
        "suspend",
        "take no decisions: values in force stay as they are",
        "It sets spec.suspend, and says what follows. Twice changes nothing more.",
    )
    _policies(told, required=True)
    _printing(told)


def _resume(commands: _Commands) -> None:
    told = _add(
        commands, "resume", "take decisions again", "It unsets spec.suspend, and says what follows."
    )
    _policies(told, required=True)
    _printing(told)


def _run(commands: _Commands) -> None:
    run = _add(commands, "run", "run the operator")
    run.add_argument("--config", metavar="FILE", required=True, help="the operator's configuration")
    run.add_argument(
        "--kubeconfig",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="default: the pod's service account, else $KUBECONFIG",
    )
    run.add_argument(
        "--namespace",
        action="append",
        default=[],
        dest="namespaces",
        metavar="N",
        help="follow policies of this namespace only; may be repeated",
    )
    run.add_argument(
        "--identity",
        metavar="NAME",
        help="who holds the lease, kept over restarts; default: $POD_NAME, else a new one",
    )
    run.add_argument("--log-format", choices=("json", "text"), default="json", help="of log lines")
    run.add_argument("--verbose", action="store_true", help="log tracebacks of failed ticks")


def _check(commands: _Commands) -> None:
    told = _add(
        commands,
        "check",
        "whether the operator that is installed works, as `helm test` asks",
        "The definition is served and has every field of this version; one operator renews its "
        "Lease and answers. Asked from within the cluster, since it calls the operator's pod.",
    )
    told.add_argument(
        "--config", metavar="FILE", help="the operator's configuration; default: an empty one"
    )
    told.add_argument(
        "--rights",
        action="store_true",
        help="instead: whether this account may do what the operator does",
    )
    told.add_argument(
        "--timeout", metavar="SECONDS", type=_seconds, default=60.0, help="default: 60"
    )
    # -n: where the operator runs.
    _where(told, argparse.SUPPRESS)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no time to wait: write seconds, such as 60")
    return seconds


def _crd(commands: _Commands) -> None:
    _add(commands, "crd", "print the CustomResourceDefinition")


def _wire(commands: _Commands) -> None:
    wired = _add(commands, "wire", "print a workload's manifest with the plugin wired in")
    wired.add_argument("file", metavar="FILE", help="the manifest; - for standard input")
    source = wired.add_mutually_exclusive_group()
    source.add_argument(
        "--plugin-image", metavar="IMAGE", help="copy the plugin from this image at pod start"
    )
    source.add_argument(
        "--plugin-installed",
        action="store_true",
        help="the engine's image has evictune-policies installed (the default)",
    )
    wired.add_argument("--container", metavar="NAME", help="the engine, where it is not obvious")
    wired.add_argument(
        "--memory",
        action="store_true",
        help="with the folder (an emptyDir) that a change of the memory fraction needs",
    )
    wired.add_argument(
        "--check",
        action="store_true",
        help="print no manifest: say what it lacks, and exit with 1 if that is anything",
    )


def _dashboards(commands: _Commands) -> None:
    told = _add(commands, "dashboards", "Grafana's dashboards, without Grafana")
    actions = told.add_subparsers(required=True, metavar="ACTION", dest="action")
    drawn = _add(
        actions,
        "preview",
        "draw every panel with a store's data, as one HTML file",
        "The file fetches nothing: it can be mailed, or kept with an incident.",
    )
    for flags, text in (
        (("--prometheus", "URL"), "the store's address, before /api/v1"),
        (("--out", "FILE"), "where the page goes"),
    ):
        drawn.add_argument(flags[0], metavar=flags[1], required=True, help=text)
    drawn.add_argument(
        "--dashboard",
        action="append",
        dest="dashboards",
        choices=BOARDS,
        help="this one only; may be repeated",
    )
    for flag, metavar, default, text in (
        ("--policy", "NAME", None, "which policy's dashboard; default: the first there is"),
        ("--last", "DURATION", "3h", "how much time; default: 3h"),
        ("--end", "TIME", None, "until when, such as 2026-11-29T12:00:00Z; default: now"),
        ("--scrape-interval", "DURATION", "15s", "of the store, as Grafana is told; default: 15s"),
    ):
        drawn.add_argument(flag, metavar=metavar, default=default, help=text)
    drawn.add_argument(
        *("-n", "--namespace"),
        metavar="N",
        default=argparse.SUPPRESS,
        help="of the policies and engines; default: all",
    )


def _completion(commands: _Commands) -> None:
    told = _add(
        commands,
        "completion",
        "print a script that completes words in a shell",
        "Commands, options and policies' names are completed. "
        'For bash, add to ~/.bashrc: eval "$(evictune completion bash)".',
    )
    told.add_argument("shell", choices=SHELLS, help="for which shell")


def _policies(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Which policies, and where: as kubectl has it."""
    every = "--all: every one of the namespace" if required else "default: all of the namespace"
    named = parser.add_argument(
        "policies",
        metavar="POLICY",
        nargs="*",
        help=f"NAME or NAMESPACE/NAME; {every}",
    )
    named.completer = _complete_policies  # type: ignore[attr-defined]  # argcomplete looks here
    if required:
        parser.add_argument("--all", action="store_true", help="every policy of the namespace")
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="every policy of the cluster"
    )
    # What was given before COMMAND stands, unless it is given again.
    _where(parser, argparse.SUPPRESS)


def _where(parser: argparse.ArgumentParser, default: str | None) -> None:
    """Where to look, as kubectl has it."""
    for flags, metavar, text in (
        (("-n", "--namespace"), "N", "default: that of the context, else default"),
        (("--context",), "NAME", "of the kubeconfig; default: its current one"),
        (("--kubeconfig",), "FILE", "default: $KUBECONFIG, ~/.kube/config"),
    ):
        parser.add_argument(*flags, metavar=metavar, default=default, help=text)


def _complete_policies(**call: Any) -> list[str]:
    # Asking the cluster takes its client, which is slow to load.
    from evictune.console.place import policy_names

    return policy_names(**call)


def _printing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="default: text"
    )
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto, the default: on a terminal, unless NO_COLOR is set",
    )


_COMMANDS: tuple[Callable[[_Commands], None], ...] = (
    _explain,
    _history,
    _diff,
    _suspend,
    _resume,
    _wire,
    _dashboards,
    _check,
    _crd,
    _run,
    _completion,
)
