"""Which tests of the real node one worker runs one after another, and in which order.

xdist's own groups (`--dist loadgroup`) are of no use here: version 3.8 writes the group into a
test's id, which pytest 9.2 does not let it do, and then every test is a group of its own.
"""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

# Those with a real vLLM, which they share.
ENGINE = (
    "recommend",
    "closed_loop",
    "dashboards",
    "engine_restart",
    "policy_delete",
    "lru_is_best",
)
# Those that share one installation, as in a release's life.
LIFE = (
    "install",
    "first_policy",
    "wire",
    "suspend",
    "scale",
    "rollout",
    "wrong_values",
    "conflict",
    "namespace_delete",
    "upgrade",
    "rollback",
    "prometheus_outage",
    "uninstall",
    "namespaced_mode",
)
ORDER = (*ENGINE, *LIFE)
GROUPS = ("engine", "life")


def group_of(nodeid: str) -> str:
    """The group of a test: that of its behaviour, else its file."""
    file = nodeid.partition("::")[0]
    behaviour = file.rpartition("tests/e2e/")[2].partition("/")[0]
    if behaviour in ENGINE:
        return "engine"
    return "life" if behaviour in LIFE else file


class GroupScheduling(LoadFileScheduling):
    """File by file, but behaviours that share something as if they stood in one."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
