"""The page for MCP Apps: a host shows it next to the reply of a compaction or search.

The page makes no requests. It contains its script and style, and its policy allows only their
hashes. The host calls the server's tools for it when the user asks for more.
"""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.metadata import version

from mcp_server_compaction.viewer.web import static_text, templates


@cache
def host_app() -> str:
    """Return the page as HTML."""
    script, style = static_text("app.js"), static_text("app.css")
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    return (
        templates()
        .get_template("host_app.html")
        .render(policy=policy, script=script, style=style, version=version("mcp-server-compaction"))
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
