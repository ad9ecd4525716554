"""Every number of the demonstration, once.

docs/explanation/demo.md explains the choices; the tests check the ones that can be checked without
an engine.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelSize:
    """A random Llama. intermediate is the width of the MLP, head that of an attention head."""

    layers: int = 2
    hidden: int = 512
    intermediate: int = 1024
    heads: int = 8
    head: int = 64
    vocabulary: int = 1024
    seed: int = 7


@dataclass(frozen=True)
class EngineSize:
    """What the engine is started with. A block is the unit in which KV is kept and evicted."""

    block_tokens: int = 32
    blocks: int = 200
    max_model_tokens: int = 4096
    port: int = 8000
    metrics_port: int = 9410


@dataclass(frozen=True)
class Phase:
    """A stretch of the load: `rounds` rounds over the first `conversations` conversations.

    In every round each conversation has one turn, followed by the one-shot prompts. `counted` is
    false where first touches are unavoidable: such a phase is shown in the plots, not compared.
    """

    name: str
    title: str
    conversations: int
    rounds: int
    counted: bool


@dataclass(frozen=True)
class Load:
    """Long conversations, each over a document of its own, and one-shot prompts between turns.

    A conversation's first prompt is its document; every turn adds `growth` tokens. After `turns`
    turns a new session over the same document begins. Conversation i begins i * `stagger` turns
    into its session, so that the mix of lengths is about the same at any time.
    """

    document_tokens: int = 1200
    growth_tokens: int = 60
    turns: int = 12
    stagger: int = 5
    one_shots: int = 6
    one_shot_tokens: int = 200
    output_tokens: int = 8
    seed: int = 20
    phases: tuple[Phase, ...] = (
        Phase("warm-up", "every document is read once", 3, 1, False),
        Phase("three", "three conversations", 3, 12, True),
        Phase("arrival", "two more conversations arrive", 5, 1, False),
        Phase("five", "five conversations", 5, 15, True),
    )
    encore: Phase = Phase("encore", "until the loop has said its last word", 5, 20, False)
    """Goes on where the phases end, for the loop alone, until its search is over, if it is not yet:
    how many steps that takes depends on the threshold that was measured."""

    @property
    def titles(self) -> dict[str, str]:
        """The phases' titles by their names."""
        return {phase.name: phase.title for phase in (*self.phases, self.encore)}


@dataclass(frozen=True)
class Objective:
    """The target of the EvictionPolicy and the loop's pace.

    Machines differ in speed, so the first arm measures what a millisecond is worth. The threshold
    is the time to first token of a request with `threshold_tokens` uncached tokens: on the straight
    line through the medians of the one-shot prompts and of the turns, rounded to `threshold_step`
    seconds. Durations are in requests, and become seconds by the medians of what those take.
    A p99 would need 300 requests in the window, most of a minute; the p97 of some 50 requests is
    told by the slower fifth of the turns, and a single hiccup of the machine does not move it.
    """

    quantile: str = "0.97"
    threshold_tokens: int = 450
    threshold_step: float = 0.005
    window_requests: int = 50
    min_requests: int = 30
    settle_requests: int = 22
    interval_seconds: float = 1.0
    cooldown_seconds: float = 1.0
    tolerance: str = "0.10"
    knob_ttl_seconds: float = 120.0
    xi_min: int = 32
    xi_max: int = 4096
    q_hat: int = 60


@dataclass(frozen=True)
class Rule:
    """When the loop counts as better than stock LRU; judged in every counted phase.

    In the phase's last `steady_share` of requests, which both arms share: the 99th percentile of
    uncached tokens, which carries no timing noise, is lower by at least `margin`, and that of the
    time to first token is lower. Over the whole phase, search included: fewer uncached tokens.
    """

    steady_share: float = 0.4
    margin: float = 0.10


SHORT_LOAD = Load(
    phases=(
        Phase("warm-up", "every document is read once", 3, 1, False),
        Phase("three", "three conversations", 3, 11, True),
    ),
    encore=Phase("encore", "nothing", 3, 0, False),
)
"""For `--short`: the first act alone."""

MODEL = ModelSize()
ENGINE = EngineSize()
LOAD = Load()
OBJECTIVE = Objective()
RULE = Rule()

NAMESPACE = "demo"
DEPLOYMENT = "chat"
POLICY = "chat"
SERVED_MODEL = "tiny"
TTFT_BUCKET_RATIO = 1.05
"""Neighbouring bounds of the engine's TTFT histogram: a quantile is then known to 5 %."""
TTFT_BUCKET_RANGE = (0.010, 5.0)
