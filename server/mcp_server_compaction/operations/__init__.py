"""Metrics and traces, for the operator of a service."""
