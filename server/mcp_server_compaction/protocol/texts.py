"""Texts for models and people, in `texts.toml`: tools, notes, prompts and resources."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def texts() -> dict[str, Any]:
    """Return the content of `texts.toml`, by section."""
    return tomllib.loads(
        files("mcp_server_compaction.protocol").joinpath("texts.toml").read_text("utf-8")
    )
