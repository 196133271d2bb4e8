"""The earlier name of a part of `calls`; goes when nothing imports it."""

from context_compaction.activity.calls import made_call, makes_several

__all__ = ["made_call", "makes_several"]
