"""MF-4: the fraction in a manifest is `$(GPU_FRAC)`, filled from a ConfigMap. Field case 26.

No manifest is parsed: what is in force is what each engine shows. So a text that is no number
matters to nobody, an edited ConfigMap that no engine has read is not taken for applied, and a
fraction counts as applied only when every engine that restarted for it shows it.
"""

from __future__ import annotations

from decimal import Decimal

from tests.support.loop_case import EPOCH, PODS, play
from tests.support.memory_case import MemoryCase
from tests.support.shortage import short_of_blocks

ARGS = ["--model=acme/owl-8b", "--gpu-memory-utilization=$(GPU_FRAC)"]


class FromConfigMap(MemoryCase):
    """Every pod's command line names a variable."""

    def _live(self) -> None:
        super()._live()
        for pod in self.life.pods:
            body = self.api.objects[f"{PODS}/{pod.name}"]
            (engine,) = body["spec"]["containers"]
            engine |= {"args": ARGS, "envFrom": [{"configMapRef": {"name": "owl-env"}}]}


def test_the_value_is_read_from_the_engine_and_applied_when_every_engine_shows_it() -> None:
    case = FromConfigMap(short_of_blocks)

    async def scenario(case: MemoryCase) -> None:
        await case.run(60)
        assert case.status["engines"]["gpuMemoryUtilization"] == "0.85"
        while "Kept" not in case.told:
            assert case.now < EPOCH + 3 * 3600
            shown = case.status.get("applied", {}).get("values", {})
            assert "gpuMemoryUtilization" not in shown
            await case.run(30)
        assert case.fractions == ["0.87", "0.87"]
        await case.run(30)
        assert case.status["engines"]["gpuMemoryUtilization"] == "0.87"
        assert case.condition("PolicyActive")[0] == "True"
        assert case.written() == {"evictionpolicies/status", "configmaps", "events"}

    play(scenario, case)


def test_an_engine_that_still_runs_the_old_value_is_named() -> None:
    case = FromConfigMap(short_of_blocks)

    async def scenario(case: MemoryCase) -> None:
        while "Kept" not in case.told:
            await case.run(30)
        # Somebody starts an engine of it anew that does not read the document.
        case.life.pods[0].fraction = Decimal("0.85")
        await case.run(60)
        status, reason, message = case.condition("PolicyActive")
        assert (status, reason) == ("False", "FractionNotInForce")
        assert "pod owl-8b-1-0 shows memory fraction 0.85, not 0.87" in message

    play(scenario, case)
