"""Images and documents count by their content, never as the text of their base64."""

import base64
import os
import struct

import pytest
from context_compaction.messages.model import Document, Image, Message, Opaque, Text, ToolResult
from context_compaction.tokens.counter import counter_for
from context_compaction.tokens.media import (
    PDF_PAGE_TOKENS,
    ImageRule,
    PatchRule,
    base64_tokens,
    document_tokens,
    image_size,
    image_tokens,
)
from context_compaction.tokens.models import profile_for
from hypothesis import given
from hypothesis import strategies as st

CLAUDE = profile_for("claude-opus-4-8").image
CLAUDE_OLD = profile_for("claude-sonnet-4-5").image
GPT_4O = profile_for("gpt-4o").image


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def png(width: int, height: int, extra_bytes: int = 0) -> bytes:
    header = struct.pack(">I4sIIBBBBB", 13, b"IHDR", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + header + os.urandom(4 + extra_bytes)


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(20)


def jpeg(width: int, height: int, exif_bytes: int = 0) -> bytes:
    exif = b"\xff\xe1" + struct.pack(">H", exif_bytes + 2) + bytes(exif_bytes)
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8" + (exif if exif_bytes else b"") + frame + bytes(50_000)


def webp(width: int, height: int) -> bytes:
    size = struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
    return b"RIFF" + bytes(4) + b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + size + bytes(10)


@pytest.mark.parametrize(
    "picture",
    [
        png(640, 480),
        png(640, 480, extra_bytes=500_000),
        gif(640, 480),
        jpeg(640, 480),
        jpeg(640, 480, exif_bytes=40_000),
        webp(640, 480),
    ],
    ids=["png", "large png", "gif", "jpeg", "jpeg with exif", "webp"],
)
def test_image_size_is_read_from_the_first_bytes(picture: bytes) -> None:
    assert image_size(encode(picture)) == (640, 480)


@given(
    st.sampled_from([png(9, 9), gif(9, 9), jpeg(9, 9, exif_bytes=99)[:400], webp(9, 9)]),
    st.lists(st.tuples(st.integers(0, 399), st.integers(0, 255)), max_size=8),
    st.integers(0, 400),
)
def test_image_size_never_raises_when_the_image_is_damaged(
    picture: bytes, changes: list[tuple[int, int]], length: int
) -> None:
    damaged = bytearray(picture)
    for position, value in changes:
        damaged[position % len(damaged)] = value

    size = image_size(encode(bytes(damaged[:length])))

    assert size is None or min(size) > 0


@pytest.mark.parametrize(
    ("rule", "width", "height", "tokens"),
    [
        (CLAUDE_OLD, 1000, 1000, 36 * 36),
        (CLAUDE_OLD, 28, 28, 1),
        (CLAUDE_OLD, 29, 28, 2),
        (CLAUDE_OLD, 4000, 4000, 1568),
        (CLAUDE_OLD, 3136, 280, 56 * 5),
        (CLAUDE, 2576, 1288, 92 * 46),
        (CLAUDE, 9000, 9000, 4784),
        (GPT_4O, 1000, 1000, 85 + 170 * 4),
        (GPT_4O, 300, 200, 85 + 170),
        (GPT_4O, 2048, 4096, 85 + 170 * 6),
        (PatchRule(32, 2048, 1536, 1.62), 1024, 1024, 1659),
    ],
)
def test_image_tokens_follow_the_rule_of_the_provider(
    rule: ImageRule, width: int, height: int, tokens: int
) -> None:
    assert image_tokens(encode(png(width, height)), rule) == tokens


def test_large_image_is_not_counted_as_text_in_any_place() -> None:
    counter = counter_for("claude-sonnet-4-5")
    data = encode(png(1000, 1000, extra_bytes=1_300_000))
    picture = Image("image/png", data=data)
    unknown = Opaque("screenshot", {"type": "screenshot", "nested": [{"deep": data}]})
    message = Message("user", (picture, ToolResult("call", (Text("seen"), picture)), unknown))

    tokens = counter.message(message)

    assert 3 * 36 * 36 <= tokens < 3 * 36 * 36 + 100


def test_pdf_tokens_follow_its_pages_when_the_page_tree_is_visible() -> None:
    pages = b"".join(b"<< /Type /Page /Parent 1 0 R >>\n" for _ in range(7))
    pdf = b"%PDF-1.4\n<< /Type /Pages /Count 7 >>\n" + pages + os.urandom(900_000)
    document = Document("application/pdf", data=encode(pdf))

    assert document_tokens(document) == 7 * PDF_PAGE_TOKENS


def test_text_document_counts_as_its_text() -> None:
    counter = counter_for("gpt-4o")
    text = "name,amount\n" * 500
    inline = Document("text/plain", text=text)
    encoded = Document("text/csv", data=encode(text.encode()))

    assert counter.block(inline) == counter.block(encoded) == counter.text(text)


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        (png(1000, 1000, extra_bytes=10_000), 1296),
        (b"%PDF-1.7\n" + bytes(40_000), PDF_PAGE_TOKENS),
        (b"RIFF" + bytes(49_996), 100),
        (b"encrypted" + bytes(3_991), 1000),
    ],
    ids=["picture", "pdf", "audio", "encrypted reasoning"],
)
def test_base64_in_an_unknown_block_counts_as_its_content(content: bytes, tokens: int) -> None:
    assert base64_tokens(encode(content), CLAUDE_OLD) == pytest.approx(tokens, abs=2)
