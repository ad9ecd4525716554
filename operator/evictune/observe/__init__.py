"""Observing: the API server's pods, the engines' metrics and the plugin's own word, as readings.

Faults of the outside world become Unknown readings with a reason; they never become zeros.
"""
