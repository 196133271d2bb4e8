"""Callers over HTTP: identity, scopes, access tokens and the audit log."""
