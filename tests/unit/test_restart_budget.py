"""One restart at a time in the whole fleet, also right after the operator's start."""

from __future__ import annotations

from decimal import Decimal

from evictune.api.decision import Memory, Phase, Turn
from evictune.api.knobs import STOCK_LRU
from evictune.index import PolicyIndex, entry_of
from evictune.restart_budget import RestartBudget

from tests.support.situations import NOW, make_pending

ONE, OTHER = ("a", "one"), ("b", "other")


def _budget() -> tuple[RestartBudget, PolicyIndex]:
    index = PolicyIndex()
    for namespace, name in (ONE, OTHER):
        index.put(entry_of({"metadata": {"namespace": namespace, "name": name}}))
    return RestartBudget(index), index


def _restarting(phase: Phase) -> Memory:
    turn = Turn("chat-8b-0", "uid", 2, 0, NOW)
    target = STOCK_LRU.at(Decimal("0.9"))
    return Memory(pending=make_pending(phase, change_to=target, turns=(turn,)))


def test_nobody_begins_before_every_policy_was_looked_at() -> None:
    budget, _ = _budget()
    assert "policy b/other" in budget.elsewhere(ONE)
    budget.note(OTHER, Memory())
    assert budget.elsewhere(ONE) == ""


def test_while_an_engine_of_one_restarts_the_others_wait() -> None:
    budget, _ = _budget()
    budget.note(ONE, Memory())
    for phase, waits in (
        (Phase.WRITING, True),
        (Phase.RESTARTING, True),
        (Phase.SETTLING, False),
        (Phase.CONCLUDING, False),
    ):
        budget.note(OTHER, _restarting(phase))
        assert bool(budget.elsewhere(ONE)) is waits, phase
        assert budget.elsewhere(OTHER) == ""


def test_a_live_change_is_no_restart() -> None:
    budget, _ = _budget()
    budget.note(OTHER, Memory(pending=make_pending()))
    assert budget.elsewhere(ONE) == ""


def test_a_policy_that_is_gone_holds_nobody_up() -> None:
    budget, index = _budget()
    budget.note(OTHER, _restarting(Phase.RESTARTING))
    assert budget.elsewhere(ONE)
    index.remove(OTHER)
    assert budget.elsewhere(ONE) == ""
