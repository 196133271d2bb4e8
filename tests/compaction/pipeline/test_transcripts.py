"""The promises on real transcripts: own format and converted, at several targets and windows."""

from dataclasses import replace

import pytest
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from hypothesis import settings

from tests.support.converted import PROVIDER_FORMATS, in_format
from tests.support.corpus import Transcript, all_transcripts, sample_transcripts
from tests.support.json_types import Json
from tests.support.promises import check_promises, temporary_archive

pytestmark = pytest.mark.slow

SHARE = 0.1  # the test of all transcripts uses a quarter
# The nightly run uses all of them.
EVERY = 1 if settings().max_examples > 1_000 else 3
PI = next(transcript for transcript in all_transcripts() if transcript.format == "pi")


async def check_share(payload: list[Json], format: str, share: float) -> None:
    async with temporary_archive() as archive:
        request = CompactRequest(mode="record", format=format)
        counted = await compact(payload, request, archive=archive)
        target = max(1, int(counted.tokens.before * share))
        await check_promises(payload, replace(request, mode="auto", target_tokens=target), archive)


@pytest.mark.timeout(120)
async def test_promises_hold_for_every_transcript_in_its_format() -> None:
    transcripts = all_transcripts()
    assert len(transcripts) > 200
    for transcript in transcripts[::EVERY]:
        await check_share(transcript.payload, transcript.format, 0.25)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("format", PROVIDER_FORMATS)
async def test_promises_hold_for_sample_transcripts_in_each_format(format: str) -> None:
    for transcript in sample_transcripts():
        await check_share(in_format(transcript, format), format, SHARE)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("format", ["pi", "openai-responses"])
async def test_long_coding_session_fits_its_window(format: str) -> None:
    async with temporary_archive() as archive:
        result = await check_promises(
            in_format(PI, format),
            CompactRequest(format=format, context_window=32_000),
            archive,
        )
    assert result.fits
    assert result.tokens.upper <= result.tokens.trigger


@pytest.mark.parametrize("transcript", sample_transcripts(), ids=lambda t: t.name)
async def test_irreducible_pieces_are_reported_with_sizes(transcript: Transcript) -> None:
    async with temporary_archive() as archive:
        result = await check_promises(
            transcript.payload,
            CompactRequest(format=transcript.format, target_tokens=5),
            archive,
        )
    assert not result.fits
    assert result.irreducible[0].tokens >= result.irreducible[-1].tokens > 0
