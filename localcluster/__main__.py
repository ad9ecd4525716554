"""`python -m localcluster`: a cluster from the shell."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys

from localcluster import background, system
from localcluster.binaries import BuildError, ensure, print_progress
from localcluster.ledger import TeardownError


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 1 and a line on stderr when it could not be done."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except (
        background.BackgroundError,
        BuildError,
        TeardownError,
        system.MachineError,
        OSError,
    ) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m localcluster", description="A real Kubernetes cluster on this machine."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument("--name", default="default", help="of the cluster (default: %(default)s)")

    up = commands.add_parser("up", parents=[named], help="start a cluster and leave it running")
    up.add_argument("--node", action="store_true", help="with a real node (root, Linux)")
    up.set_defaults(run=_up)
    down = commands.add_parser("down", parents=[named], help="remove it, and what crashes left")
    down.set_defaults(run=_down)
    status = commands.add_parser("status", parents=[named], help="whether it is up, and its nodes")
    status.set_defaults(run=_status)
    kubeconfig = commands.add_parser("kubeconfig", parents=[named], help="print its path")
    kubeconfig.set_defaults(run=_kubeconfig)
    return parser


def _up(options: argparse.Namespace) -> int:
    if options.node:
        system.require_node()
    state = background.up(options.name, options.node, print_progress)
    print(f"{state.server}\nexport KUBECONFIG={shlex.quote(state.kubeconfig)}")
    return 0


def _down(options: argparse.Namespace) -> int:
    print("removed" if background.down(options.name) else "nothing to remove")
    return 0


def _status(options: argparse.Namespace) -> int:
    state = _state(options)
    print(f"up: {state.server}, logs in {state.logs}", flush=True)
    kubectl = [str(ensure("kubectl")), f"--kubeconfig={state.kubeconfig}"]
    nodes = [*kubectl, "get", "nodes", "--request-timeout=10s"]
    return subprocess.run(nodes, check=False).returncode


def _kubeconfig(options: argparse.Namespace) -> int:
    print(_state(options).kubeconfig)
    return 0


def _state(options: argparse.Namespace) -> background.State:
    state = background.state_of(options.name)
    if state is None:
        raise background.BackgroundError(
            f"cluster {options.name!r} is not up: python -m localcluster up --name {options.name}"
        )
    return state


if __name__ == "__main__":
    sys.exit(main())
