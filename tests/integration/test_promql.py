"""What the queries mean to a real PromQL engine: `promtool test rules` evaluates them.

Series come every 15 seconds; a query looks at the ten minutes' end, over a window of two minutes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from evictune.api.sources import PodLabels
from evictune.observe.dialects import Measure
from evictune.observe.promql import query, stray_query

WINDOW = 120.0
POD = 'namespace="serve-a",pod="owl-a"'
STEADY = "0+15x40"  # One a second: 120 within the window.

Series = dict[str, str]


class Engine:
    """Evaluates queries over made-up series."""

    def __init__(self, directory: Path) -> None:
        binary = shutil.which("promtool")
        assert binary, "promtool is not on the PATH: apt-get install --yes prometheus"
        self._binary = binary
        self._file = directory / "test.yml"

    def gives(self, text: str, series: Series, expected: dict[str, float]) -> None:
        """Fail unless the query gives exactly these samples."""
        samples = [{"labels": labels, "value": value} for labels, value in expected.items()]
        test = {
            "interval": "15s",
            "input_series": [{"series": k, "values": v} for k, v in series.items()],
            "promql_expr_test": [{"expr": text, "eval_time": "10m", "exp_samples": samples}],
        }
        document = {"rule_files": [], "evaluation_interval": "15s", "tests": [test]}
        self._file.write_text(yaml.safe_dump(document))
        done = subprocess.run(
            [self._binary, "test", "rules", str(self._file)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path)


def ask(measure: Measure, **options: PodLabels) -> str:
    return query(measure, ["serve-a", "serve-b"], WINDOW, **options)


def rank(series: str, *, pod: str = "owl-a", engine: str | None = "0", **more: str) -> str:
    labels = {"namespace": "serve-a", "pod": pod, "series": series} | more
    if engine is not None:
        labels["engine"] = engine
    return "{" + ", ".join(f"{k}={json.dumps(v)}" for k, v in sorted(labels.items())) + "}"


KV_NEW, KV_OLD = "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"
PREEMPTIONS = "vllm:num_preemptions_total"
TTFT = "vllm:time_to_first_token_seconds"


def test_of_old_and_new_name_a_rank_has_one(engine: Engine) -> None:
    engine.gives(
        ask(Measure.KV_USAGE),
        {
            f'{KV_OLD}{{{POD},engine="0"}}': "0.9x40",
            f'{KV_NEW}{{{POD},engine="0"}}': "0.6x40",
            f'{KV_OLD}{{namespace="serve-a",pod="owl-b",engine="0"}}': "0.7x40",
            f'{KV_NEW}{{namespace="elsewhere",pod="owl-c",engine="0"}}': "0.8x40",
        },
        {rank(KV_NEW): 0.6, rank(KV_OLD, pod="owl-b"): 0.7},
    )


def test_the_same_series_under_two_jobs_counts_once(engine: Engine) -> None:
    engine.gives(
        ask(Measure.PREEMPTIONS),
        {
            f'{PREEMPTIONS}{{{POD},engine="0",job="pods"}}': STEADY,
            f'{PREEMPTIONS}{{{POD},engine="0",job="services",prometheus="b"}}': STEADY,
        },
        {rank(PREEMPTIONS): 120},
    )


def test_parts_of_a_rank_are_summed_and_their_copies_are_not(engine: Engine) -> None:
    name = "vllm:prefix_cache_hits_total"
    engine.gives(
        ask(Measure.CACHE_HITS),
        {
            f'{name}{{{POD},engine="0",model_name="{model}",job="{job}"}}': STEADY
            for model in ("owl", "adapter")
            for job in ("pods", "services")
        },
        {rank(name): 240},
    )


def test_ranks_are_told_apart(engine: Engine) -> None:
    engine.gives(
        ask(Measure.RUNNING),
        {
            f'vllm:num_requests_running{{{POD},engine="0"}}': "3x40",
            f'vllm:num_requests_running{{{POD},engine="1"}}': "4x40",
            'sglang:num_running_reqs{namespace="serve-b",pod="s",dp_rank="1",tp_rank="0"}': "5x40",
            'sglang:num_running_reqs{namespace="serve-b",pod="s",dp_rank="1",tp_rank="1"}': "5x40",
            # The share of one priority beside the whole.
            'sglang:num_running_reqs{namespace="serve-b",pod="s",dp_rank="1",priority="2"}': "9x40",
        },
        {
            rank("vllm:num_requests_running"): 3,
            rank("vllm:num_requests_running", engine="1"): 4,
            '{dp_rank="1", namespace="serve-b", pod="s", series="sglang:num_running_reqs"}': 5,
        },
    )


@pytest.mark.parametrize(
    "name", ["vllm:num_preemptions", "vllm_num_preemptions_total", "vllm_num_preemptions"]
)
def test_other_spellings_are_found(engine: Engine, name: str) -> None:
    engine.gives(
        ask(Measure.PREEMPTIONS),
        {f'{name}{{{POD},engine="0"}}': STEADY},
        {rank(PREEMPTIONS): 120},
    )


def test_a_restart_within_the_window_is_no_fall(engine: Engine) -> None:
    engine.gives(
        ask(Measure.PREEMPTIONS),
        {f'{PREEMPTIONS}{{{POD},engine="0"}}': "1000+15x35 0+15x10"},
        # A scrape interval is lost: what was counted between the last scrape and the restart.
        {rank(PREEMPTIONS): 105},
    )


def test_what_a_replaced_pod_counted_under_its_name_does_not_stay(engine: Engine) -> None:
    """Its successor has another address, and maybe other buckets."""
    engine.gives(
        ask(Measure.TTFT),
        {
            f'{TTFT}_bucket{{{POD},engine="0",instance="old",le="0.5"}}': "0+15x37 stale",
            f'{TTFT}_bucket{{{POD},engine="0",instance="old",le="+Inf"}}': "0+15x37 stale",
            f'{TTFT}_bucket{{{POD},engine="0",instance="new",le="0.4"}}': "_x36 0+15x10",
            f'{TTFT}_bucket{{{POD},engine="0",instance="new",le="+Inf"}}': "_x36 0+15x10",
        },
        {rank(TTFT, le="0.4"): 60, rank(TTFT, le="+Inf"): 60},
    )


def test_series_that_are_no_longer_scraped_are_gone_with_their_counts(engine: Engine) -> None:
    for measure, series in (
        (Measure.PREEMPTIONS, PREEMPTIONS),
        (Measure.KV_USAGE, KV_NEW),
    ):
        engine.gives(ask(measure), {f'{series}{{{POD},engine="0"}}': "0+15x37 stale"}, {})


def test_one_sample_in_the_window_is_no_increase(engine: Engine) -> None:
    engine.gives(ask(Measure.PREEMPTIONS), {f'{PREEMPTIONS}{{{POD},engine="0"}}': "_x39 7"}, {})


def test_the_source_of_computed_tokens_is_chosen(engine: Engine) -> None:
    name = "vllm:prompt_tokens_by_source_total"
    engine.gives(
        ask(Measure.COMPUTED_TOKENS),
        {
            f'{name}{{{POD},engine="0",source="local_compute"}}': STEADY,
            f'{name}{{{POD},engine="0",source="local_cache_hit"}}': "0+150x40",
        },
        {rank(name): 120},
    )


def test_labels_of_the_administrator_s_choice(engine: Engine) -> None:
    labels = PodLabels("kubernetes_namespace", "kubernetes_pod_name")
    own = 'kubernetes_namespace="serve-a",kubernetes_pod_name="owl-a"'
    engine.gives(
        ask(Measure.KV_USAGE, labels=labels),
        {f'{KV_NEW}{{{own},namespace="mon",pod="gateway",engine="0"}}': "0.6x40"},
        {
            '{engine="0", kubernetes_namespace="serve-a", kubernetes_pod_name="owl-a", '
            f'series="{KV_NEW}"}}': 0.6
        },
    )


def test_another_cluster_s_pod_of_the_same_name_is_left_out(engine: Engine) -> None:
    labels = PodLabels(matchers={"cluster": 'eu "1"'})
    engine.gives(
        ask(Measure.PREEMPTIONS, labels=labels),
        {
            f'{PREEMPTIONS}{{{POD},engine="0",cluster="eu \\"1\\""}}': STEADY,
            f'{PREEMPTIONS}{{{POD},engine="0",cluster="us"}}': "0+150x40",
        },
        {rank(PREEMPTIONS): 120},
    )


def test_series_that_belong_to_no_pod_are_found(engine: Engine) -> None:
    name = "vllm:num_requests_running"
    series = {
        f'{name}{{namespace="serve-a",job="j"}}': "1x40",
        f'{name}{{pod="owl-a",job="j"}}': "2x40",
        f'{name}{{namespace="mon",pod="g",exported_namespace="serve-a"}}': "3x40",
        f'{name}{{namespace="mon",pod="g",exported_namespace="elsewhere"}}': "4x40",
        f'{name}{{namespace="serve-a",pod="owl-b"}}': "5x40",
    }
    expected = {key: float(value[0]) for key, value in series.items() if value[0] in "123"}
    engine.gives(stray_query(["serve-a"], PodLabels()), series, expected)
