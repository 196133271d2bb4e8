"""The page that hosts with MCP Apps show beside a compaction or a search.

It is one document, as such hosts want it: it contains its script and style, named by their hashes,
so that nothing else runs. It loads nothing and asks the host for more by the server's own tools.
"""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.metadata import version

from mcp_server_compaction.viewer.web import environment, static_text


@cache
def host_app() -> str:
    """The document."""
    script, style = static_text("app.js"), static_text("app.css")
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    return (
        environment()
        .get_template("host_app.html")
        .render(policy=policy, script=script, style=style, version=version("mcp-server-compaction"))
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
