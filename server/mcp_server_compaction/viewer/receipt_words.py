"""A receipt in sentences."""

from collections.abc import Iterator, Mapping
from typing import Any

from mcp_server_compaction.viewer.words import count, plural

_LAYERS = {
    "repair": "repaired what no provider accepts",
    "snip": "left out messages of the middle",
    "unchanged": "put a pointer in the place of what was read again unchanged",
    "waits": "left out waits but the last of each series",
    "project_rules": "shortened rules of the project that the host handed over",
    "request": "put an extract in the place of a request that was too long",
    "persist": "moved large results to the archive",
    "dedupe": "cleared results that a later one supersedes",
    "microcompact": "cleared old results of tools",
    "fill": "put back the newest of what was cleared, where there was room",
    "collapse": "folded finished sub-tasks to a line each",
    "offload": "moved pictures and documents to the archive",
    "summarize": "put a summary in the place of history",
    "acknowledge": "added the answer that acknowledges the summary",
    "restore": "put back files that were in use",
    "changed_files": "told of files that changed since they were read",
    "thinking": "left out thinking that no longer fits what precedes it",
}
_WRITERS = {
    "extractive": "No model wrote the summary: it is made of the conversation's own words.",
    "host": "The host's own model wrote the prose of the summary.",
    "memory": "A summary that was written earlier stands there again, with what came since.",
}


def sentences(receipt: Mapping[str, Any]) -> list[str]:
    """What a compaction did, and what it cost."""
    return [*_size(receipt), *_layers(receipt), *_writer(receipt), *_cache(receipt),
            *_rest(receipt)]  # fmt: skip


def _size(receipt: Mapping[str, Any]) -> Iterator[str]:
    tokens = receipt.get("tokens")
    if not tokens:
        return
    over = tokens["before_upper"] > tokens["trigger"]
    why = (
        f"more than the trigger of {count(tokens['trigger'])}"
        if over
        else f"less than the trigger of {count(tokens['trigger'])}: it was asked for"
    )
    yield (
        f"The context held about {count(tokens['before'])} tokens "
        f"(at most {count(tokens['before_upper'])}), {why}."
    )
    saved = tokens["before"] - tokens["after"]
    share = 100 * saved / tokens["before"] if tokens["before"] else 0
    change = f"{share:.0f}% less" if saved >= 0 else f"{count(-saved)} more"
    yield (
        f"It now holds about {count(tokens['after'])}: {change}. The target was "
        f"{count(tokens['target'])}" + ("." if receipt.get("fits", True) else ", which it misses.")
    )


def _layers(receipt: Mapping[str, Any]) -> Iterator[str]:
    for layer in receipt.get("layers") or ():
        saved = layer["tokens_before"] - layer["tokens_after"]
        what = _LAYERS.get(layer["name"], "acted")
        gain = f"{count(saved)} tokens less" if saved >= 0 else f"{count(-saved)} tokens more"
        yield f"{layer['name']} {what} ({plural(layer['edit_count'], 'edit')}, {gain})."


def _writer(receipt: Mapping[str, Any]) -> Iterator[str]:
    writer, model = receipt.get("writer"), receipt.get("model")
    if writer:
        named = f" ({model['name']})" if model and model.get("name") else ""
        yield _WRITERS.get(writer, f"The summary was written by {writer}{named}.")
    if model and model.get("failure"):
        yield f"The model {model.get('name', '')} failed: {model['failure']}"


def _cache(receipt: Mapping[str, Any]) -> Iterator[str]:
    cache = receipt.get("cache")
    if cache:
        yield (
            f"The provider's cache holds up to message {cache['first_changed']} of the new list; "
            f"{count(cache['rebilled_tokens'])} tokens are read anew once"
            + (
                f", and {count(cache['saved_tokens'])} are no longer sent with every call."
                if cache["saved_tokens"] > 0
                else "."
            )
        )


def _rest(receipt: Mapping[str, Any]) -> Iterator[str]:
    restored = receipt.get("restored") or ()
    if restored:
        yield f"Put back from disk or the transcript: {', '.join(restored)}."
    losses = receipt.get("losses")
    if losses and losses.get("total"):
        yield (
            f"{plural(losses['total'], 'name')} of the conversation (paths, identifiers, errors, "
            "numbers) no longer stand in the context; all are found by search."
        )
    for piece in receipt.get("irreducible") or ():
        yield f"Could not be made smaller: {piece['description']}, {count(piece['tokens'])} tokens."
    yield from receipt.get("warnings") or ()
