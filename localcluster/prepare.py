"""`python -m localcluster.prepare`: what a machine needs before there can be a cluster on it.

Needs nothing but Python itself, so that compiling can begin while the environment is still being
set up.
"""

from __future__ import annotations

import argparse
import sys

from localcluster import system
from localcluster.binaries import SOURCES, BuildError, ensure
from localcluster.images import base_image

BASE_IMAGE = "base-image"


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 1 and a line on stderr when it could not be done."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (BuildError, system.MachineError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m localcluster.prepare",
        description="Build programs and install packages for a cluster on this machine.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="build things now instead of when needed")
    choices = (*SOURCES, BASE_IMAGE)
    build.add_argument("names", nargs="+", choices=choices, metavar="NAME", help=", ".join(choices))
    build.set_defaults(run=_build)
    packages = commands.add_parser(
        "install-packages", help="apt-get install what a node needs (root, Debian)"
    )
    packages.add_argument(
        "also", nargs="*", help="programs to install too, each in a package of its own name"
    )
    packages.set_defaults(run=_install_packages)
    return parser


def _build(options: argparse.Namespace) -> None:
    for name in options.names:
        print(base_image().archive if name == BASE_IMAGE else ensure(name), flush=True)


def _install_packages(options: argparse.Namespace) -> None:
    installed = system.install_packages(options.also)
    print(f"installed: {', '.join(installed)}" if installed else "nothing is missing", flush=True)


if __name__ == "__main__":
    sys.exit(main())
