"""MN-1: the KV usage gauge was renamed, and a fleet has the old name, the new one, and both."""

from __future__ import annotations

from evictune.api.observation import Value

from tests.support.field_case import Scene, engine_page, play

OLD, NEW = "vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"
FLEET = ("owl-8b-a", "owl-8b-b", "owl-8b-c")
ROWS = ((OLD, "a", "0.71"), (OLD, "b", "0.64"), (NEW, "b", "0.64"), (NEW, "c", "0.83"))


async def _check(scene: Scene) -> None:
    seen = await scene.look()
    assert [engine.kv_usage for engine in seen.readings.engines] == [
        Value(0.71),
        Value(0.64),
        Value(0.83),
    ]
    assert seen.readings.kv_usage == Value(0.83)
    assert seen.status["observed"]["metricNames"] == [
        {"measure": "kv_usage", "name": f"{OLD}, {NEW}"}
    ]


def test_from_the_engines_pages() -> None:
    async def scenario(scene: Scene) -> None:
        for letter in "abc":
            lines = [
                f'{n}{{engine="0",model_name="owl-8b"}} {v}' for n, p, v in ROWS if p == letter
            ]
            scene.page(f"owl-8b-{letter}", "\n".join(lines) + "\n")
        await _check(scene)

    play(scenario, *FLEET)


def test_from_a_store() -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store()
        for name, letter, value in ROWS:
            scene.store.put(name, value, f"owl-8b-{letter}")
        await _check(scene)

    play(scenario, *FLEET)


def test_where_both_are_there_and_disagree_the_new_one_wins() -> None:
    async def scenario(scene: Scene) -> None:
        scene.page("owl-8b-a", engine_page(gpu_cache_usage_perc=0.9, kv_cache_usage_perc=0.6))
        seen = await scene.look()
        assert seen.readings.kv_usage == Value(0.6)
        assert seen.readings.metric_names["kv_usage"] == NEW

    play(scenario)


def test_the_names_in_use_may_change_between_two_looks() -> None:
    """A rollout replaces the pod's image: no reading is lost or doubled on the way."""

    async def scenario(scene: Scene) -> None:
        scene.page("owl-8b-a", engine_page(gpu_cache_usage_perc=0.5))
        assert (await scene.look()).readings.kv_usage == Value(0.5)
        scene.generation += 1
        scene.page("owl-8b-a", engine_page(kv_cache_usage_perc=0.4))
        assert (await scene.look(after=30)).readings.kv_usage == Value(0.4)

    play(scenario)
