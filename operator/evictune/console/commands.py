"""Each command, carried out; and each error as one line with an exit code.

What only one command needs is loaded by it: aiohttp and Kopf take longer than an answer.
"""

from __future__ import annotations

import json
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from kubernetes.config import ConfigException

from evictune.api.policy import DNS_LABEL
from evictune.api.quantity import FieldError
from evictune.console import difference, documents, explain, history, suspension
from evictune.console.paper import Paper, paper_for
from evictune.console.place import Place, connect, find, place_of
from evictune.console.refusals import RefusedError, UsageError, explained
from evictune.console.subjects import Subject, subject_of
from evictune.kube import ApiError

LEASE_LOST = 3


def carry_out(options: Namespace, program: str) -> int:
    """The exit code of a parsed command line; errors become one line on standard error."""
    try:
        COMMANDS[options.command](options)
    except UsageError as error:
        return _complain(program, error, 2)
    except ApiError as error:
        return _complain(program, explained(error), 1)
    except RefusedError as error:
        return _complain(program, error, error.code)
    except FieldError as error:
        return _complain(program, error, 1)
    except ConfigException as error:
        told = f"no connection to a cluster: {error}".rstrip(".")
        told += "; give --kubeconfig or --context"
        return _complain(program, told, 1)
    except BrokenPipeError:
        raise
    except OSError as error:
        # A file that is not there, an address in use: the message names it.
        return _complain(program, error, 1)
    return 0


def _complain(program: str, error: object, code: int) -> int:
    print(f"{program}: {error}", file=sys.stderr)
    return code


def _explain(options: Namespace) -> None:
    _tell(
        options,
        lambda subject, now: documents.explain_item(subject, now),
        lambda subjects, paper: _ruled([explain.render(each, paper) for each in subjects], paper),
    )


def _history(options: Namespace) -> None:
    _tell(
        options,
        lambda subject, _: documents.history_item(subject, steps=options.steps),
        lambda subjects, paper: history.render(subjects, paper, steps=options.steps),
    )


def _diff(options: Namespace) -> None:
    _tell(options, documents.diff_item, difference.render)


def _tell(
    options: Namespace,
    item: Callable[[Subject, float], documents.Json],
    render: Callable[[Sequence[Subject], Paper], str],
) -> None:
    """Print the policies named: as JSON by `item`, as text by `render`."""
    place, paper = place_of(options), paper_for(sys.stdout, options.color)
    subjects = [subject_of(place.api, body) for body in find(place, options)]
    if options.output == "json":
        items = [item(each, paper.now) for each in subjects]
        _print_json(documents.document(options.command, items))
    elif subjects:
        print(render(subjects, paper))
    else:
        _say_none(options, place)


def _ruled(texts: Sequence[str], paper: Paper) -> str:
    """Texts with a rule between them."""
    return f"\n\n{'─' * paper.width}\n\n".join(texts)


def _print_json(answer: documents.Json) -> None:
    print(json.dumps(answer, indent=2, ensure_ascii=False))


def _say_none(options: Namespace, place: Place) -> None:
    where = "in the cluster" if options.all_namespaces else f"in namespace {place.namespace}"
    print(f"There is no EvictionPolicy {where}.", file=sys.stderr)


def _suspend(options: Namespace) -> None:
    _switch(options, suspend=True)


def _resume(options: Namespace) -> None:
    _switch(options, suspend=False)


def _switch(options: Namespace, *, suspend: bool) -> None:
    chosen = [bool(options.policies), options.all, options.all_namespaces]
    if sum(chosen) != 1:
        raise UsageError(
            f"{options.command}: name policies, or give --all for the namespace, or -A for the "
            "cluster: one of the three"
        )
    place, paper = place_of(options), paper_for(sys.stdout, options.color)
    done: list[documents.Json] = []
    try:
        for body in find(place, options):
            subject = subject_of(place.api, body)
            switched = suspension.switch(place.api, subject, suspend, paper.now)
            done.append(documents.switch_item(switched))
            if options.output == "text":
                print(suspension.render(switched, paper))
    except ApiError:
        # Some may be switched by now: who reads JSON is told of them too.
        if options.output == "json" and done:
            _print_json(documents.document(options.command, done))
        raise
    if options.output == "json":
        _print_json(documents.document(options.command, done))
    elif not done:
        _say_none(options, place)


def _run(options: Namespace) -> None:
    from evictune.api.sources import parse_configuration
    from evictune.election import LeaseLostError
    from evictune.run import run_operator

    if options.namespace or options.context:
        raise UsageError("run takes no -n and no --context: write run --namespace N")
    for name in options.namespaces:
        if not re.search(DNS_LABEL, name):
            raise UsageError(f"--namespace {name!r} cannot be a namespace: write a-z, 0-9 and -")
    configuration = parse_configuration(_text_of(options.config))
    try:
        run_operator(
            configuration=configuration,
            kubeconfig=options.kubeconfig,
            namespaces=options.namespaces,
            log_format=options.log_format,
            identity=options.identity,
            verbose=options.verbose,
        )
    except LeaseLostError as error:
        raise RefusedError(error, LEASE_LOST) from error


def _crd(_: Namespace) -> None:
    from evictune.api.crd import crd

    print(yaml.safe_dump(crd(), sort_keys=False, width=100), end="")


def _wire(options: Namespace) -> None:
    from evictune.wiring import Wiring, WiringError, check, wire

    text = _text_of(options.file)
    if options.plugin_image is not None and not options.plugin_image.strip():
        raise UsageError("--plugin-image is empty: name the image that holds the plugin")
    wiring = Wiring(options.plugin_image, options.container)
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


def _check(options: Namespace) -> None:
    from evictune.api.sources import parse_configuration
    from evictune.console.check import Account, Installation, run

    configuration = parse_configuration(_text_of(options.config) if options.config else "")
    place = connect(options)
    kind = Account if options.rights else Installation
    checks = kind(place.api, place.namespace, configuration).checks()
    if not run(checks, options.timeout, print):
        raise RefusedError("the installation does not work as it should: see above")


def _completion(options: Namespace) -> None:
    from evictune.console.completion import script

    print(script(options.shell))


def _text_of(file: str) -> str:
    """The file's text; of standard input for -. Raises RefusedError."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except OSError as error:
        raise RefusedError(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RefusedError(f"{file}: not a text in UTF-8: {error}") from error


COMMANDS: dict[str, Callable[[Any], None]] = {
    "explain": _explain,
    "history": _history,
    "diff": _diff,
    "suspend": _suspend,
    "resume": _resume,
    "wire": _wire,
    "dashboards": _dashboards,
    "check": _check,
    "crd": _crd,
    "run": _run,
    "completion": _completion,
}
