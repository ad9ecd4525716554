"""Grafana's dashboards as code: one file a dashboard, `query` and `panels` shared by all.

`python -m dashboards` writes the JSON; see README.md.
"""
