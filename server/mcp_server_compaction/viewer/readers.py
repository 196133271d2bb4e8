"""What readers could answer from a context: the measurement that this version was released with.

`readers.json` is written by `benchmarks/readers/score.py --json`.
"""

import json
from importlib.resources import files
from typing import Any

from mcp_server_compaction.viewer.web import Page, Visit

# How the page names each condition, in the order of its columns.
CONDITIONS = {
    "ours": "this program",
    "ours-again": "read again after mends",
    "ours-one-call": "with one call a question",
    "ours-one-call-again": "with one call a question, read again",
    "ours-with-words": "with a model's words",
    "ours-with-words-again": "with a model's words, read again",
    "nine": "a model's summary in nine sections",
    "newest": "the newest text",
    "ours-4k": "this program, 4,000 tokens",
    "ours-4k-again": "4,000 tokens, read again",
    "nine-4k": "nine sections, 4,000 tokens",
}


async def results(_: Visit) -> Page:
    """`/readers`: points by session and condition."""
    text = files("mcp_server_compaction.viewer").joinpath("readers.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return Page("readers.html", document, {"conditions": CONDITIONS})
