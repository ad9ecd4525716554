"""`evictune-replay compare | curve | advise | convert | policies`.

Exit codes: 0 done; 2 wrong usage or input, in one line on standard error; 130 interrupted.

What needs the compiler is imported by the commands that replay, so that wrong usage is told at
once and `policies` needs NumPy alone.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from evictune_policies.algorithms.catalog import POLICIES
from evictune_policies.replay.console import arguments
from evictune_policies.replay.console.table import table


def main(given: Sequence[str] | None = None) -> int:
    """The console script. Errors become one line on standard error."""
    _open_closed_streams()
    try:
        options = make_parser().parse_args(given)
        options.command(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output went away, such as `head`. What is left is not written anywhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return arguments.complain(f"{where}{error.strerror or error}")
    except MemoryError:
        return arguments.complain("not enough memory: use a smaller --capacity or a shorter trace")
    except ModuleNotFoundError as error:
        return arguments.complain(f"{error}: pip install 'evictune-policies[replay]'")
    except ValueError as error:
        return arguments.complain(error)
    except KeyboardInterrupt:
        return 130
    return 0


def _open_closed_streams() -> None:
    """Where a caller closed them (`>&-`), Python has None; what is said then goes nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - to the end


def make_parser() -> arguments.Parser:
    """The whole grammar."""
    parser = arguments.Parser(
        prog="evictune-replay",
        description="Replays a request trace under KV-cache eviction policies, and says which "
        "would help. Capacities are in blocks, lengths in tokens.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_compare(commands)
    _add_curve(commands)
    _add_advise(commands)
    _add_convert(commands)
    listed = _add(commands, "policies", "list the policies")
    listed.set_defaults(command=_policies)
    return parser


def _add(
    commands: argparse._SubParsersAction[arguments.Parser], name: str, text: str
) -> arguments.Parser:
    return commands.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}.")


def _add_trace(command: arguments.Parser) -> None:
    command.add_argument("trace", metavar="TRACE", help="a file, or a directory of sessions")
    command.add_argument(
        "--format",
        default="auto",
        metavar="NAME",
        help="of the trace; auto (the default) finds out; see docs/reference/trace-format.md",
    )
    command.add_argument(
        "--block-tokens",
        type=arguments.whole_number(1, 1 << 20, "16"),
        metavar="N",
        help="divide the trace's blocks into blocks of N tokens",
    )
    assumed = command.add_argument_group("what a trace without times or sessions leaves open")
    assumed.add_argument(
        "--conversations-per-second",
        type=arguments.positive("0.5"),
        metavar="RATE",
        help="at which conversations begin, at random; default: the format's own",
    )
    assumed.add_argument(
        "--think",
        type=arguments.duration,
        default=10.0,
        metavar="DURATION",
        help="mean time from an answer to the next turn, default 10s",
    )
    assumed.add_argument(
        "--seed",
        type=arguments.whole_number(0, 2**31, "0"),
        default=0,
        metavar="N",
        help="of these random times, default 0",
    )
    assumed.add_argument(
        "--share-prompts",
        action="store_true",
        help="sessions whose system prompts are equally long have the same one",
    )


def _add_output(command: arguments.Parser) -> None:
    command.add_argument("--json", action="store_true", help="one array of objects, for programs")
    command.add_argument("--html", metavar="FILE", help="write a report with plots as well")


def _add_parameters(command: arguments.Parser, default: str) -> None:
    command.add_argument(
        "--policies",
        type=arguments.policies,
        default=arguments.policies(default),
        metavar="NAMES",
        help=f"comma-separated, default {default}; `evictune-replay policies` lists them",
    )
    command.add_argument(
        "--xi",
        type=arguments.whole_numbers(0, arguments.MAX_TOKENS, "8192,16384"),
        default=(),
        metavar="TOKENS",
        help="uncached tokens that a request may have: T-LRU's parameter, and what TEL counts from",
    )
    command.add_argument(
        "--qhat",
        type=arguments.whole_numbers(0, arguments.MAX_TOKENS, "200"),
        default=(),
        metavar="TOKENS",
        help="growth of a conversation from turn to turn that T-LRU allows for",
    )
    command.add_argument(
        "--prefill",
        type=arguments.prefill_cost,
        metavar="COST",
        help="SECONDS_PER_TOKEN[,QUADRATIC], for policies that weigh what a block cost to compute, "
        "and for timed replays",
    )
    command.add_argument(
        "--fidelity",
        choices=("order", "timed"),
        default="order",
        help="order (the default): one request at a time; timed: requests overlap, as in vLLM, and "
        "take their time",
    )
    engine = command.add_argument_group("the engine of a timed replay")
    engine.add_argument(
        "--max-num-batched-tokens",
        type=arguments.whole_number(1, arguments.MAX_TOKENS, "2048"),
        default=2048,
        metavar="N",
        help="as vLLM's, default 2048",
    )
    engine.add_argument(
        "--max-num-seqs",
        type=arguments.whole_number(1, 1 << 20, "128"),
        default=128,
        metavar="N",
        help="as vLLM's, default 128",
    )
    engine.add_argument(
        "--step",
        type=arguments.duration,
        default=0.01,
        metavar="DURATION",
        help="that a step takes whatever is in it, default 10ms",
    )


def _add_compare(commands: argparse._SubParsersAction[arguments.Parser]) -> None:
    command = _add(commands, "compare", "policies against each other on one trace")
    _add_trace(command)
    command.add_argument(
        "--capacity",
        type=arguments.whole_numbers(1, arguments.MAX_BLOCKS, "3000,10000"),
        required=True,
        metavar="BLOCKS",
        help="usable blocks, comma-separated (vLLM's num_gpu_blocks less its null block)",
    )
    _add_parameters(command, "prefix-lru")
    _add_output(command)
    command.set_defaults(command=_lazily("compare"))


def _add_curve(commands: argparse._SubParsersAction[arguments.Parser]) -> None:
    command = _add(commands, "curve", "policies over a range of capacities or loads")
    _add_trace(command)
    command.add_argument("--over", choices=("capacity", "load"), required=True)
    command.add_argument(
        "--capacity",
        type=arguments.whole_numbers(1, arguments.MAX_BLOCKS, "3000,10000"),
        default=(),
        metavar="BLOCKS",
        help="over capacity: the points (default: chosen); over load: the one capacity",
    )
    command.add_argument(
        "--load",
        type=arguments.numbers(1, "1,2,4"),
        default=(1.0, 2.0, 3.0, 4.0, 6.0, 8.0),
        metavar="FACTORS",
        help="over load, default 1,2,3,4,6,8: so many copies of the trace at once; in a timed "
        "replay the trace in so much less time",
    )
    _add_parameters(command, "prefix-lru")
    _add_output(command)
    command.set_defaults(command=_lazily("curve"))


def _add_advise(commands: argparse._SubParsersAction[arguments.Parser]) -> None:
    command = _add(commands, "advise", "which policy and xi, and whether any can help")
    _add_trace(command)
    command.add_argument(
        "--capacity",
        type=arguments.whole_number(1, arguments.MAX_BLOCKS, "10000"),
        required=True,
        metavar="BLOCKS",
        help="usable blocks (vLLM's num_gpu_blocks less its null block)",
    )
    command.add_argument(
        "--slo",
        type=arguments.duration,
        required=True,
        metavar="DURATION",
        help="time to first token that is allowed, such as 800ms",
    )
    command.add_argument(
        "--quantile",
        type=arguments.quantile,
        default=0.99,
        metavar="Q",
        help="share of the requests that have to be in time, default 0.99",
    )
    command.add_argument(
        "--prefill",
        type=arguments.prefill_cost,
        required=True,
        metavar="COST",
        help="SECONDS_PER_TOKEN[,QUADRATIC] of the model on this hardware: n uncached tokens after "
        "m cached ones take SECONDS_PER_TOKEN * n + QUADRATIC * n * (n + 2 m) / 2",
    )
    command.add_argument(
        "--policies",
        type=arguments.policies,
        default=arguments.policies("t-lru"),
        metavar="NAMES",
        help="candidates besides the engine's own order, default t-lru: what the plugin can do",
    )
    _add_output(command)
    command.set_defaults(command=_lazily("advice"), fidelity="order")


def _add_convert(commands: argparse._SubParsersAction[arguments.Parser]) -> None:
    command = _add(commands, "convert", "write a trace in another format")
    _add_trace(command)
    command.add_argument("--to", choices=("native",), required=True)
    command.add_argument("-o", "--output", metavar="FILE", required=True)
    command.set_defaults(command=_lazily("convert"))


def _lazily(command: str) -> Callable[[argparse.Namespace], None]:
    """The command of this name, imported when it is run."""

    def run(options: argparse.Namespace) -> None:
        from evictune_policies.replay.console import commands

        getattr(commands, command)(options)

    return run


def _policies(_: argparse.Namespace) -> None:
    rows = [
        (
            policy.name,
            ", ".join(each.removesuffix("_tokens") for each in policy.parameters),
            "offline" if policy.offline else "online",
            policy.summary.removeprefix("offline: "),
        )
        for policy in POLICIES.values()
    ]
    print(table(("policy", "set by", "kind", "what goes first"), rows, left=4))
    print("\nWhere each comes from, and when to choose it: docs/policies.md")
