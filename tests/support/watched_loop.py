"""A `LoopCase` read once a minute, as Prometheus would, and the alerts that come of it."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from evictune.kube import ApiError

from tests.support.alert_rules import RULES, queries, rules
from tests.support.loop_case import EPOCH, NAMESPACE, LoopCase
from tests.support.promql_names import names_in
from tests.support.promtool import promtool

KEY = (NAMESPACE, "owl-chat")
_EVER_FIRED = 'group by (alertname) (last_over_time(ALERTS{alertstate="firing"}[2d]))'
_READ = {name for rule in rules() for query in queries(rule) for name in names_in(query)}
_GONE = ("stale", "_")


class WatchedLoop:
    """The series of a case, one value a minute."""

    def __init__(self, case: LoopCase) -> None:
        self.case = case
        self.minutes = 0
        self._series: dict[str, list[str]] = {}

    async def run(self, minutes: int) -> None:
        """So many minutes; ticks may fail."""
        for _ in range(minutes):
            end = self.case.now + 60
            try:
                await self.case.run(60)
            except ApiError:
                self.case.now = end
            else:
                self._show_schedule()
            self._read()

    def _show_schedule(self) -> None:
        """What the loop around the ticks shows, and who runs it."""
        metrics = self.case.metrics
        metrics.leading.set(1)
        metrics.last_list.set(self.case.now)
        if self.case.outcomes[-1] is None:
            metrics.forget(KEY)
        else:
            metrics.last_tick.labels(*KEY).set(self.case.now)
            metrics.interval.labels(*KEY).set(30)

    def _read(self) -> None:
        shown = {}
        for family in self.case.metrics.registry.collect():
            for sample in family.samples:
                if sample.name not in _READ:
                    continue
                labels = ",".join(f"{k}={json.dumps(v)}" for k, v in sample.labels.items())
                # Promtool's time begins at 0.
                late = EPOCH if sample.name.endswith("_timestamp_seconds") else 0.0
                shown[f"{sample.name}{{{labels}}}"] = sample.value - late
        for name in self._series.keys() | shown.keys():
            values = self._series.setdefault(name, ["_"] * self.minutes)
            gone = "stale" if values and values[-1] not in _GONE else "_"
            values.append(f"{shown[name]:.6f}" if name in shown else gone)
        self.minutes += 1

    def expect(self, alerts: set[str], directory: Path) -> None:
        """Fail unless these alerts, and no others, fired at some time."""
        samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(alerts)]
        test = {
            "interval": "1m",
            "input_series": [
                {"series": name, "values": " ".join(values)}
                for name, values in self._series.items()
            ],
            "promql_expr_test": [
                {"expr": _EVER_FIRED, "eval_time": f"{self.minutes}m", "exp_samples": samples}
            ],
        }
        file = directory / "alerts.yaml"
        document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}
        file.write_text(yaml.safe_dump(document))
        done = promtool("test", "rules", str(file))
        assert done.returncode == 0, done.stdout + done.stderr
