"""`evictune run | explain | crd | wire`; installed as `kubectl-evictune` too.

Exit codes: 0 done; 1 the cluster or the manifest does not allow it; 2 wrong usage; 3 (of `run`)
another operator took the lease: start again, as a follower.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml
from kubernetes.config import ConfigException

from evictune.api.crd import crd
from evictune.api.policy import DNS_LABEL, DNS_SUBDOMAIN
from evictune.api.quantity import FieldError
from evictune.api.sources import parse_configuration
from evictune.election import LeaseLostError
from evictune.explain import explain
from evictune.kube import ApiError, KubeApi, load_configuration, policies_path
from evictune.wiring import Wiring, WiringError, wire


class UsageError(Exception):
    """Wrong usage of the command line: exit code 2."""


class RefusedError(Exception):
    """What was asked for cannot be done: exit code 1."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The console script. Errors become one line on standard error."""
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except UsageError as error:
        return _complain(error, 2)
    except (RefusedError, FieldError, WiringError, ApiError) as error:
        return _complain(error, 1)
    except LeaseLostError as error:
        return _complain(error, 3)
    except ConfigException as error:
        return _complain(f"no connection to a cluster: {error}; give --kubeconfig", 1)
    except BrokenPipeError:
        # The reader of our output went away, such as `head`.
        sys.stderr.close()
    except OSError as error:
        # A file that is not there, an address in use: the message names it.
        return _complain(error, 1)
    except KeyboardInterrupt:
        return 130
    return 0


def _complain(error: object, code: int) -> int:
    print(f"evictune: {error}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="evictune", description="Tunes how vLLM evicts KV-cache blocks, against a TTFT target."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run(commands)
    _add_explain(commands)
    printed = commands.add_parser("crd", help="print the CustomResourceDefinition")
    printed.set_defaults(command=_crd)
    _add_wire(commands)
    return parser


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = commands.add_parser("run", help="run the operator")
    run.add_argument("--config", metavar="FILE", required=True, help="the operator's configuration")
    run.add_argument(
        "--kubeconfig", metavar="FILE", help="default: the pod's service account, else $KUBECONFIG"
    )
    run.add_argument(
        "--namespace",
        action="append",
        default=[],
        metavar="N",
        help="follow policies of this namespace only; may be repeated",
    )
    run.add_argument(
        "--identity",
        metavar="NAME",
        help="who holds the lease, kept over restarts; default: $POD_NAME, else a new one",
    )
    run.add_argument("--log-format", choices=("json", "text"), default="json")
    run.add_argument("--verbose", action="store_true", help="log tracebacks of failed ticks")
    run.set_defaults(command=_run)


def _add_explain(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    told = commands.add_parser(
        "explain", help="what was seen, believed and decided for a policy, and what would help"
    )
    told.add_argument("policy", metavar="NAMESPACE/NAME")
    told.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, ~/.kube/config")
    told.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    told.set_defaults(command=_explain)


def _add_wire(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    wired = commands.add_parser(
        "wire", help="print a workload's manifest with the engine plugin wired in"
    )
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
    wired.set_defaults(command=_wire)


def _run(options: argparse.Namespace) -> None:
    # Kopf is heavy; only this command needs it.
    from evictune.run import run_operator

    for name in options.namespace:
        if not re.search(DNS_LABEL, name):
            raise UsageError(f"--namespace {name!r} cannot be a namespace: write a-z, 0-9 and -")
    run_operator(
        configuration=parse_configuration(_text_of(options.config)),
        kubeconfig=options.kubeconfig,
        namespaces=options.namespace,
        log_format=options.log_format,
        identity=options.identity,
        verbose=options.verbose,
    )


def _explain(options: argparse.Namespace) -> None:
    namespace, _, name = options.policy.partition("/")
    if not re.search(DNS_LABEL, namespace) or not re.search(DNS_SUBDOMAIN, name):
        raise UsageError(f"{options.policy!r}: write NAMESPACE/NAME, such as default/chat-8b")
    api = KubeApi(load_configuration(options.kubeconfig))
    colored = options.color == "always" or (options.color == "auto" and sys.stdout.isatty())
    text = explain(api, namespace, name, colored=colored)
    if text is None and api.get_or_none(policies_path(namespace)) is None:
        raise RefusedError(
            "the cluster does not know EvictionPolicy: evictune crd | kubectl apply -f -"
        )
    if text is None:
        raise RefusedError(f"there is no EvictionPolicy {name} in namespace {namespace}")
    print(text)


def _crd(_: argparse.Namespace) -> None:
    print(yaml.safe_dump(crd(), sort_keys=False, width=100), end="")


def _wire(options: argparse.Namespace) -> None:
    text = _text_of(options.file)
    try:
        print(wire(text, Wiring(options.plugin_image, options.container)), end="")
    except WiringError as error:
        raise RefusedError(f"{options.file}: {error}") from error


def _text_of(file: str) -> str:
    """The file's text; of standard input for -. Raises RefusedError."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except OSError as error:
        raise RefusedError(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RefusedError(f"{file}: not a text in UTF-8: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
