"""Run a ProcessNode: `python -m localcluster.processnode --kubeconfig F --name N --directory D`.

Prints `ready` once the node is registered. SIGTERM or SIGINT stops its pods and takes it out of
the cluster.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from pathlib import Path

from kubernetes.config import ConfigException

from localcluster.processnode.agent import DirectoryInUseError, NodeAgent, WorkingDirectory
from localcluster.processnode.api import ClusterApi


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    try:
        api = ClusterApi.from_kubeconfig(options.kubeconfig)
        directory = WorkingDirectory(options.directory)
    except ConfigException as error:
        print(f"error: kubeconfig {options.kubeconfig}: {error}", file=sys.stderr)
        return 2
    except (DirectoryInUseError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    try:
        agent = NodeAgent(api, options.name, directory.path)
        _run(agent, options.until_stdin_closes)
    finally:
        directory.close()
    return 1 if agent.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m localcluster.processnode",
        description="A Kubernetes node that runs its pods as local processes, without root.",
    )
    parser.add_argument("--kubeconfig", type=Path, required=True, metavar="FILE")
    parser.add_argument("--name", required=True, help="name of the Node object")
    parser.add_argument(
        "--directory", type=Path, required=True, help="where volumes and logs are kept"
    )
    parser.add_argument(
        "--until-stdin-closes",
        action="store_true",
        help="stop when standard input closes, that is, with the program that started this one",
    )
    return parser


def _run(agent: NodeAgent, until_stdin_closes: bool) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop.set())

    def announce() -> None:
        agent.ready.wait()
        print("ready", flush=True)

    def stop_with_parent() -> None:
        sys.stdin.read()
        agent.stop.set()

    for task in (announce, stop_with_parent) if until_stdin_closes else (announce,):
        threading.Thread(target=task, daemon=True).start()
    agent.run()


if __name__ == "__main__":
    sys.exit(main())
