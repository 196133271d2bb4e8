"""Count the tokens of images and documents by their size, never as base64 text.

The rules are published by the providers. The size of an image is read from its first bytes. An
image of unknown size (a URL, an unknown type) counts as the maximum of its rule.
"""

import io
import math
from binascii import Error as Base64Error
from binascii import a2b_base64
from dataclasses import dataclass
from typing import TypeAlias

from context_compaction.messages.cache import CountCache, text_key
from context_compaction.messages.model import Document

# How much base64 is decoded to find an image's size. The first length is enough for most images,
# but a JPEG can have 40 KB of EXIF data before its size.
IMAGE_HEAD_CHARS = (4_096, 65_536)

# Anthropic's documentation: 1,500 to 3,000 tokens per page for text and image.
PDF_PAGE_TOKENS = 3_000
# Assumed for a PDF with a compressed page tree: between a text page (20 KB) and a scan (100 KB).
PDF_PAGE_BYTES = 50_000
# Assumed for a document that is only a URL.
UNKNOWN_DOCUMENT_TOKENS = 5 * PDF_PAGE_TOKENS
# Gemini's documentation: 32 tokens for a second of audio, 263 for a second of video. A second
# commonly has 16 KB of audio or 250 KB of video.
BYTES_PER_TOKEN = {"audio": 500, "video": 950}

_BITMAP_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a")
# In base64: "%PDF-"; RIFF (WAV), ID3 and three MP3 frames, Ogg, FLAC.
_MAGIC_BASE64 = {
    "JVBERi0": "application/pdf",
    **dict.fromkeys(("UklGR", "SUQz", "//s", "//M", "//I", "T2dnUw", "ZkxhQw"), "audio/*"),
}
_PAGES = CountCache(1_000)
_URL_SAFE = str.maketrans("-_", "+/")


@dataclass(frozen=True, slots=True)
class PatchRule:
    """The rule of Claude, Gemini and small OpenAI models: a fixed number of tokens per square.

    Attributes:
        patch_px: Edge of a square, in pixels.
        max_edge_px: A longer image is first scaled down to this edge, in pixels.
        max_patches: An image of more squares is scaled down to this number of squares.
        patch_tokens: Tokens of one square.
    """

    patch_px: int
    max_edge_px: int
    max_patches: int
    patch_tokens: float = 1.0

    def tokens(self, width_px: int, height_px: int) -> int:
        """Return the tokens of an image of this size."""
        scale = min(1.0, self.max_edge_px / max(width_px, height_px))
        columns = math.ceil(width_px * scale / self.patch_px)
        rows = math.ceil(height_px * scale / self.patch_px)
        return math.ceil(min(columns * rows, self.max_patches) * self.patch_tokens)

    @property
    def most_tokens(self) -> int:
        """Tokens of an image of unknown size."""
        return math.ceil(self.max_patches * self.patch_tokens)


@dataclass(frozen=True, slots=True)
class TileRule:
    """OpenAI's rule for gpt-4o and similar models: base tokens, plus tokens per 512-pixel tile.

    The image is scaled down into 2048 x 2048, then to a shortest side of 768.

    Attributes:
        base_tokens: Tokens of every image.
        tile_tokens: Tokens of one tile.
    """

    base_tokens: int = 85
    tile_tokens: int = 170

    def tokens(self, width_px: int, height_px: int) -> int:
        """Return the tokens of an image of this size."""
        scale = min(1.0, 2048 / max(width_px, height_px), 768 / min(width_px, height_px))
        columns = math.ceil(width_px * scale / 512)
        rows = math.ceil(height_px * scale / 512)
        return self.base_tokens + self.tile_tokens * columns * rows

    @property
    def most_tokens(self) -> int:
        """Tokens of an image of unknown size: 2048 x 768 pixels are 4 x 2 tiles."""
        return self.base_tokens + self.tile_tokens * 8


ImageRule: TypeAlias = PatchRule | TileRule


def image_tokens(data: str | None, rule: ImageRule) -> int:
    """Return the tokens of an image in base64 or a data URL; the rule's maximum without a size."""
    size = image_size(data) if data else None
    return rule.most_tokens if size is None else rule.tokens(*size)


def image_size(data: str) -> tuple[int, int] | None:
    """Return width and height in pixels of a PNG, JPEG, GIF or WebP in base64.

    None if the size is not found. Other types are not read, because no provider accepts all of
    them and their parsers would get untrusted bytes.
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
    # Imported here, because it loads an HTTP client, which takes too long for a hook.
    import imagesize  # type: ignore[import-untyped]  # it has no py.typed marker

    # For a truncated or damaged header it returns -1; a test with damaged images checks this.
    width_px, height_px = imagesize.get(  # pyright: ignore[reportUnknownMemberType] - partly typed
        io.BytesIO(head), exif_rotation=False
    )
    if not (0 < width_px < 1 << 31 and 0 < height_px < 1 << 31):
        return None
    return width_px, height_px


def document_tokens(document: Document) -> int:
    """Return the tokens of a document without `text`, by its type and size."""
    if not document.data:
        return UNKNOWN_DOCUMENT_TOKENS
    data = strip_data_url(document.data)
    bytes_per_token = BYTES_PER_TOKEN.get(document.media_type.partition("/")[0])
    if bytes_per_token is None:
        return pdf_pages(data) * PDF_PAGE_TOKENS
    return math.ceil(len(data) * 3 // 4 / bytes_per_token)


def base64_tokens(data: str, rule: ImageRule) -> int:
    """Return the tokens of base64 of unknown purpose: image, PDF, audio or encrypted reasoning."""
    content = strip_data_url(data)
    size = image_size(content)
    if size is not None:
        return rule.tokens(*size)
    for magic, media_type in _MAGIC_BASE64.items():
        if content.startswith(magic):
            return document_tokens(Document(media_type, data=content))
    if data.startswith("data:image/"):
        return rule.most_tokens
    return encrypted_tokens(content)


def encrypted_tokens(data: str) -> int:
    """Return the tokens that a signature or encrypted reasoning represents.

    Only the provider can read it. Other tools also count 3/16 of a token for each base64 character,
    which is one token for 4 bytes.
    """
    return len(data) * 3 // 16


def pdf_pages(data: str) -> int:
    """Return the pages of a PDF in base64: visible page objects, or an estimate by size."""
    # Both ends and the length identify a file, because hashing many megabytes takes long.
    ends = f"{len(data)} {data[:32_768]} {data[-32_768:]}"

    def pages() -> int:
        # The nodes of the page tree are of the type "Pages".
        content = b"".join((_decode(data) or b"").split())
        visible = content.count(b"/Type/Page") - content.count(b"/Type/Pages")
        return visible or max(1, math.ceil(len(data) * 3 / 4 / PDF_PAGE_BYTES))

    return _PAGES.get_or_compute(text_key(ends), pages)


def decode_base64_text(data: str) -> str:
    """Return the text of a text document in base64. Invalid UTF-8 becomes U+FFFD."""
    content = _decode(strip_data_url(data))
    return data if content is None else content.decode("utf-8", "replace")


def strip_data_url(data: str) -> str:
    """Return the base64 part of `data`, which can be a data URL."""
    return data.partition(",")[2] if data.startswith("data:") else data


def _decode(base64: str) -> bytes | None:
    """Return the bytes of base64 in either alphabet; None if it is invalid.

    Line breaks and a truncated end are allowed.
    """
    compact = "".join(base64.split()).translate(_URL_SAFE).rstrip("=")
    compact = compact[: len(compact) - (len(compact) % 4 == 1)]
    try:
        return a2b_base64(compact + "=" * (-len(compact) % 4))
    except (Base64Error, ValueError):
        return None
