"""Transcripts converted to other formats by the product's own conversion."""

from context_compaction.formats import FORMATS, parse, render
from context_compaction.formats.convert import convert

from .corpus import Transcript
from .json_types import Json

PROVIDER_FORMATS = tuple(name for name in FORMATS if name != "pi")


def in_format(transcript: Transcript, format: str) -> list[Json]:
    """Return the messages of `transcript` in `format`; unconverted if that is its own format."""
    if transcript.format == format:
        return transcript.payload
    messages = parse(transcript.payload, format=transcript.format)
    return render(convert(messages, to=format), format=format)
