"""The dashboards drawn without Grafana: their JSON, a store's answers, one page of HTML.

It knows what these dashboards use of Grafana and no more: time series, numbers, state timelines and
tables; variables with the values of a label; marks at times that a series tells.
"""
