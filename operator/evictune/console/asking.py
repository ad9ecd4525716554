"""The commands that ask the cluster, and its refusals as a person is told of them."""

from __future__ import annotations

import json
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any

from kubernetes.config import ConfigException

from evictune.api.policy import DNS_LABEL
from evictune.console import difference, documents, explain, history, suspension
from evictune.console.files import text_of
from evictune.console.paper import Paper, paper_for
from evictune.console.place import Place, connect, find, place_of
from evictune.console.refusals import RefusedError, UsageError, explained
from evictune.console.subjects import Subject, subject_of
from evictune.kube import ApiError

LEASE_LOST = 3


def ask(options: Namespace) -> None:
    """Carry a command out. Raises RefusedError, UsageError, FieldError, OSError."""
    try:
        COMMANDS[options.command](options)
    except ApiError as error:
        raise RefusedError(explained(error)) from error
    except ConfigException as error:
        told = f"no connection to a cluster: {error}".rstrip(".")
        raise RefusedError(f"{told}; give --kubeconfig or --context") from error


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
    configuration = parse_configuration(text_of(options.config))
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


def _check(options: Namespace) -> None:
    from evictune.api.sources import parse_configuration
    from evictune.console.check import Account, Installation, run

    configuration = parse_configuration(text_of(options.config) if options.config else "")
    place = connect(options)
    kind = Account if options.rights else Installation
    checks = kind(place.api, place.namespace, configuration).checks()
    if not run(checks, options.timeout, print):
        raise RefusedError("the installation does not work as it should: see above")


COMMANDS: dict[str, Callable[[Any], None]] = {
    "explain": _explain,
    "history": _history,
    "diff": _diff,
    "suspend": _suspend,
    "resume": _resume,
    "check": _check,
    "run": _run,
}
