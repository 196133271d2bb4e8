"""What images and documents cost, found without ever treating base64 as text.

The rules are the providers' published ones. Sizes are read from the first bytes of a picture; what
cannot be known (a URL, an unknown kind) is charged the most that its rule allows.
"""

import io
import math
import re
from binascii import Error as Base64Error
from binascii import a2b_base64
from dataclasses import dataclass
from typing import TypeAlias

from context_compaction.messages.cache import CountCache, text_key
from context_compaction.messages.model import Document

# How much base64 is decoded to find a picture's size: a little does for most, but a JPEG may carry
# 40 KB of EXIF data before its size.
IMAGE_HEAD_CHARS = (4_096, 65_536)

# Anthropic's documentation: 1,500 to 3,000 tokens a page, its text and its picture.
PDF_PAGE_TOKENS = 3_000
# A guess for a PDF whose page tree is compressed: between a text page (20 KB) and a scan (100 KB).
PDF_PAGE_BYTES = 50_000
# For a document that only a URL points to, we can know nothing.
UNKNOWN_DOCUMENT_TOKENS = 5 * PDF_PAGE_TOKENS
# Gemini's documentation: 32 tokens for a second of audio, 263 of video. At the common 16 KB and
# 250 KB a second that is a token for so many bytes:
AUDIO_BYTES_PER_TOKEN = 500
VIDEO_BYTES_PER_TOKEN = 950

_BITMAP_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a")
_PDF_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
# The same in base64: "%PDF-"; and of audio: RIFF (WAV), ID3 and three MP3 frames, Ogg, FLAC.
_PDF_MAGIC_BASE64 = "JVBERi0"
_AUDIO_MAGIC_BASE64 = ("UklGR", "SUQz", "//s", "//M", "//I", "T2dnUw", "ZkxhQw")
_PAGES = CountCache(1_000)
_URL_SAFE = str.maketrans("-_", "+/")


@dataclass(frozen=True, slots=True)
class PatchRule:
    """A picture is cut into squares that cost the same each (Claude, Gemini, small OpenAI models).

    Attributes:
        patch_px: Edge of a square.
        max_edge_px: A longer picture is first scaled down to this edge.
        max_patches: A picture of more squares is scaled down to this number.
        patch_tokens: Tokens of one square.
    """

    patch_px: int
    max_edge_px: int
    max_patches: int
    patch_tokens: float = 1.0

    def tokens(self, width_px: int, height_px: int) -> int:
        """Tokens of a picture of this size."""
        scale = min(1.0, self.max_edge_px / max(width_px, height_px))
        columns = math.ceil(width_px * scale / self.patch_px)
        rows = math.ceil(height_px * scale / self.patch_px)
        return math.ceil(min(columns * rows, self.max_patches) * self.patch_tokens)

    @property
    def most_tokens(self) -> int:
        """Tokens of a picture whose size is unknown."""
        return math.ceil(self.max_patches * self.patch_tokens)


@dataclass(frozen=True, slots=True)
class TileRule:
    """OpenAI's rule for gpt-4o and its like: a base, and 512-pixel tiles of a scaled picture.

    It is scaled into 2048 x 2048, then to a shortest side of 768, never up.
    """

    base_tokens: int = 85
    tile_tokens: int = 170

    def tokens(self, width_px: int, height_px: int) -> int:
        """Tokens of a picture of this size."""
        scale = min(1.0, 2048 / max(width_px, height_px), 768 / min(width_px, height_px))
        columns = math.ceil(width_px * scale / 512)
        rows = math.ceil(height_px * scale / 512)
        return self.base_tokens + self.tile_tokens * columns * rows

    @property
    def most_tokens(self) -> int:
        """Tokens of a picture whose size is unknown: 2048 x 768 are 4 x 2 tiles."""
        return self.base_tokens + self.tile_tokens * 8


ImageRule: TypeAlias = PatchRule | TileRule


def image_tokens(data: str | None, rule: ImageRule) -> int:
    """Tokens of a picture given as base64 text (or a data URL), or the rule's most without one."""
    size = image_size(data) if data else None
    return rule.most_tokens if size is None else rule.tokens(*size)


def image_size(data: str) -> tuple[int, int] | None:
    """Width and height in pixels of a base64 PNG, JPEG, GIF or WebP, or None if not to be seen.

    Only these four, which every provider takes: other kinds would hand untrusted bytes to parsers
    of XML and nested boxes for nothing.
    """
    content = strip_data_url(data)
    for head_chars in IMAGE_HEAD_CHARS:
        size = _bitmap_size(_decode(content[:head_chars]) or b"")
        if size is not None or len(content) <= head_chars:
            return size
    return None


def _bitmap_size(head: bytes) -> tuple[int, int] | None:
    is_webp = head.startswith(b"RIFF") and head[8:12] == b"WEBP"
    if not (is_webp or head.startswith(_BITMAP_MAGIC)):
        return None
    # Here and not above: it loads an HTTP client, which a hook has no time for.
    import imagesize  # type: ignore[import-untyped]  # it has no py.typed marker

    # For a header that is cut or wrong it answers -1; a test with damaged pictures makes sure.
    width_px, height_px = imagesize.get(  # pyright: ignore[reportUnknownMemberType] - partly typed
        io.BytesIO(head), exif_rotation=False
    )
    if not (0 < width_px < 1 << 31 and 0 < height_px < 1 << 31):
        return None
    return width_px, height_px


def document_tokens(document: Document) -> int:
    """Tokens of a document without `text`, from its kind and its bytes."""
    if not document.data:
        return UNKNOWN_DOCUMENT_TOKENS
    data = strip_data_url(document.data)
    size_bytes = len(data) * 3 // 4
    kind = document.media_type.partition("/")[0]
    if kind == "audio":
        return math.ceil(size_bytes / AUDIO_BYTES_PER_TOKEN)
    if kind == "video":
        return math.ceil(size_bytes / VIDEO_BYTES_PER_TOKEN)
    return pdf_pages(data) * PDF_PAGE_TOKENS


def base64_tokens(data: str, rule: ImageRule) -> int:
    """Tokens of base64 text of unknown purpose: picture, PDF, audio, or encrypted reasoning."""
    content = strip_data_url(data)
    size = image_size(content)
    if size is not None:
        return rule.tokens(*size)
    if content.startswith(_PDF_MAGIC_BASE64):
        return pdf_pages(content) * PDF_PAGE_TOKENS
    if content.startswith(_AUDIO_MAGIC_BASE64):
        return math.ceil(len(content) * 3 / 4 / AUDIO_BYTES_PER_TOKEN)
    if data.startswith("data:image/"):
        return rule.most_tokens
    return encrypted_tokens(content)


def encrypted_tokens(data: str) -> int:
    """Tokens of what a signature or encrypted reasoning represents: 4 of its bytes a token.

    The ratio is the field's own (3/16 of a token for a base64 character); nobody outside the
    provider can read what it holds.
    """
    return len(data) * 3 // 16


def pdf_pages(data: str) -> int:
    """Pages of a base64 PDF: its page objects where they can be seen, else a guess by its bytes."""
    # Both ends and the length stand for a file of many megabytes.
    ends = f"{len(data)} {data[:32_768]} {data[-32_768:]}"

    def pages() -> int:
        visible = sum(1 for _ in _PDF_PAGE.finditer(_decode(data) or b""))
        return visible or max(1, math.ceil(len(data) * 3 / 4 / PDF_PAGE_BYTES))

    return _PAGES.get_or_compute(text_key(ends), pages)


def decode_base64_text(data: str) -> str:
    """The text of a base64 text document; bytes that are no UTF-8 become U+FFFD."""
    content = _decode(strip_data_url(data))
    return data if content is None else content.decode("utf-8", "replace")


def strip_data_url(data: str) -> str:
    """The base64 part of `data`, which may be a data URL."""
    return data.partition(",")[2] if data.startswith("data:") else data


def _decode(base64: str) -> bytes | None:
    """The bytes of base64 text, both alphabets, line breaks and a cut end allowed; None if none."""
    compact = "".join(base64.split()).translate(_URL_SAFE).rstrip("=")
    compact = compact[: len(compact) - (len(compact) % 4 == 1)]
    try:
        return a2b_base64(compact + "=" * (-len(compact) % 4))
    except (Base64Error, ValueError):
        return None
