"""Each command, carried out; and each error as one line with an exit code.

What only one command needs is loaded by it: the cluster's client takes longer than an answer.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from evictune.api.quantity import FieldError
from evictune.console.files import text_of
from evictune.console.refusals import RefusedError, UsageError


def carry_out(options: Namespace, program: str) -> int:
    """The exit code of a parsed command line; errors become one line on standard error."""
    try:
        WITHOUT_A_CLUSTER.get(options.command, _ask_cluster)(options)
    except UsageError as error:
        return _complain(program, error, 2)
    except RefusedError as error:
        return _complain(program, error, error.code)
    except FieldError as error:
        return _complain(program, error, 1)
    except BrokenPipeError:
        raise
    except OSError as error:
        # A file that is not there, an address in use: the message names it.
        return _complain(program, error, 1)
    return 0


def _complain(program: str, error: object, code: int) -> int:
    print(f"{program}: {error}", file=sys.stderr)
    return code


def _ask_cluster(options: Namespace) -> None:
    from evictune.console.asking import ask

    ask(options)


def _crd(_: Namespace) -> None:
    import yaml

    from evictune.api.crd import crd

    print(yaml.safe_dump(crd(), sort_keys=False, width=100), end="")


def _wire(options: Namespace) -> None:
    from evictune.wiring import Wiring, WiringError, check, wire

    text = text_of(options.file)
    if options.plugin_image is not None and not options.plugin_image.strip():
        raise UsageError("--plugin-image is empty: name the image that holds the plugin")
    wiring = Wiring(options.plugin_image, options.container, options.memory)
    try:
        if options.check:
            _report(check(text, wiring))
        else:
            print(wire(text, wiring), end="")
    except WiringError as error:
        raise RefusedError(f"{options.file}: {error}") from error


def _report(workloads: dict[str, list[str]]) -> None:
    """A line for each workload, and what it lacks. Raises RefusedError if that is anything."""
    for name, lacking in workloads.items():
        print(f"{name}: {'not wired' if lacking else 'wired'}")
        for line in lacking:
            print(f"  {line}")
    if any(workloads.values()):
        raise RefusedError("not every workload is wired: evictune wire, without --check, adds it")


def _dashboards(options: Namespace) -> None:
    from evictune.console.preview import preview

    preview(options)


def _completion(options: Namespace) -> None:
    from evictune.console.completion import script

    print(script(options.shell))


WITHOUT_A_CLUSTER: dict[str, Callable[[Any], None]] = {
    "wire": _wire,
    "dashboards": _dashboards,
    "crd": _crd,
    "completion": _completion,
}
