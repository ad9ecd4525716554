"""`evictune COMMAND`; installed as `kubectl-evictune` too, so that `kubectl evictune` works.

Exit codes: 0 done; 1 the cluster or the manifest does not allow it; 2 wrong usage; 3 (of `run`)
another operator took the lease: start again, as a follower; 130 interrupted.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from evictune.console.parser import make_parser, program_name

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """The console script. Errors become one line on standard error."""
    try:
        return _main(arguments)
    except BrokenPipeError:
        # The reader of our output went away, such as `head`. What Python would still flush at exit
        # goes nowhere.
        _point_at_nothing(sys.stdout)
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED


def _main(arguments: Sequence[str] | None) -> int:
    program = program_name()
    parser = make_parser(program)
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser, always_complete_options=False)
    try:
        options = parser.parse_args(arguments)
    except SystemExit:
        sys.stdout.flush()  # --help may have no reader any more either
        raise
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a sign gets another, not a traceback.
        sys.stdout.reconfigure(errors="replace")
    # What commands need is not loaded for --help, usage or completion.
    from evictune.console.commands import carry_out

    code = carry_out(options, program)
    sys.stdout.flush()
    return code


def _point_at_nothing(stream: object) -> None:
    if isinstance(stream, io.TextIOWrapper):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)


if __name__ == "__main__":
    sys.exit(main())
