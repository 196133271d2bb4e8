"""`serve --http`: how the service is reached, and by whom, from the flags."""

from pathlib import Path

from context_compaction.errors import SettingsError

from mcp_server_compaction.access.oauth import OAuthSettings
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.http_service import (
    MCP_PATH,
    Service,
    check_public_url,
    serve_http,
)


def run_service(
    config: Config,
    *,
    host: str,
    port: int,
    unix_socket: Path | None,
    workers: int,
    public_url: str | None,
    oauth_issuer: str | None,
    oauth_audience: str | None,
    oauth_jwks_url: str | None,
    oauth_tenant_claim: str,
    audit_log: Path | None,
    has_metrics: bool,
    log: str,
) -> None:
    """Serve until interrupted.

    Raises:
        SettingsError: The flags do not go together, or one cannot be used.
    """
    public = None if public_url is None else check_public_url(public_url)
    if public is not None and unix_socket is not None:
        raise SettingsError("A Unix socket is for one user: leave it or --public-url out.")
    if public is None and (oauth_issuer or oauth_audience or oauth_jwks_url):
        raise SettingsError(
            "Tokens of an authorization server are made for a service that has a name. Give it "
            "with --public-url."
        )
    if public is not None and config.roots.folders:
        raise SettingsError("A team's service reads no files of this machine. Leave --root out.")
    oauth = None
    if public is not None and oauth_issuer is not None:
        audience = oauth_audience or f"{public}{MCP_PATH}"
        oauth = OAuthSettings(oauth_issuer, audience, oauth_jwks_url, oauth_tenant_claim)
    if has_metrics and workers > 1:
        raise SettingsError(
            "Prometheus asks one process, and would get the figures of another one each time. Run "
            "several services of one worker each, or send figures by OTLP."
        )
    service = Service(
        host,
        port,
        unix_socket,
        workers,
        public,
        oauth,
        audit_log,
        has_metrics,
        logs_json=log == "json",
    )
    serve_http(config, service)
