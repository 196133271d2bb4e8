"""Callers over HTTP: identity, scopes, rates and the audit log."""
