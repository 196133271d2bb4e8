"""Five rounds with a model that forgets all rules: the summary has them next to its text."""

import json
from pathlib import Path

import anyio
import pytest
from context_compaction import AnthropicModel, CompactRequest, compact, open_archive

from tests.support.json_types import Json
from tests.support.promises import without_originals
from tests.support.provider_rules import problems
from tests.support.small import newer_prevails, turn_with_call
from tests.support.strict_answers import Says
from tests.support.strict_provider import serve_provider

WAIT_SECONDS = 200
ROUNDS = 5
FORGETFUL = (
    "## Goal and latest request\nThe parts of the build are finished in sequence.\n\n"
    + "The parts were built in this order, and each of them was checked when it was done. " * 12
    + "\n\n## Next step\nGo on with the next part."
)
RULES = [
    "Never touch the production database.",
    "Deine Berichte müssen immer auf Deutsch sein.",
    "Nunca borres los registros de auditoría.",
    "Il ne faut jamais toucher aux factures signées.",
    "Не трогай каталог с миграциями.",
    "不要修改配置文件里的端口号。",
    "本番環境には絶対に接続しないでください。",
]
OLDER = "Always store the uploads in the bucket acme-raw."
NEWER = "From now on store the uploads in the bucket acme-clean."
RESTATED = ("Session data must stay in Memcached.", "Session data lives in Postgres these days.")


def rounds() -> list[list[Json]]:
    """Return the messages of each round. All rules come before the last two rounds."""
    user_texts = [
        ["Build it.", *RULES[:3]],
        [OLDER, RESTATED[0], *RULES[3:]],
        [NEWER, RESTATED[1]],
        ["Go on.", "And the next part."],
        ["Go on again.", "And the last part."],
    ]
    numbered = enumerate(
        (n, request) for n, requests in enumerate(user_texts) for request in requests
    )
    messages: list[list[Json]] = [[] for _ in range(ROUNDS)]
    for number, (n, request) in numbered:
        messages[n] += turn_with_call(number, request)
    return messages


@pytest.mark.timeout(240)
@pytest.mark.parametrize("keeps_originals", [True, False])
async def test_rules_survive_five_summaries_when_model_forgets_them(
    tmp_path: Path, keeps_originals: bool
) -> None:
    context: list[Json] = []
    with anyio.fail_after(WAIT_SECONDS), serve_provider(lambda _: Says(FORGETFUL)) as api:
        model = AnthropicModel(
            model="claude-haiku-5-5", api_key="test-key", base_url=api.url, timeout_seconds=150.0
        )
        for talk in rounds():
            context = [*context, *talk]
            request = CompactRequest(mode="full", target_tokens=6_000, session_id="story")
            async with open_archive(tmp_path) as opened:
                archive = opened if keeps_originals else without_originals(opened)
                result = await compact(context, request, archive=archive, model=model)
            assert result.receipt["writer"] == "anthropic", result.warnings
            assert problems(result.messages, "anthropic", original=context) == []
            context = result.messages
    text = json.dumps(context, ensure_ascii=False)
    assert FORGETFUL.rpartition("\n")[2] in text
    for rule in (*RULES, NEWER, RESTATED[1]):
        assert rule in text
    assert newer_prevails(OLDER, NEWER, text)
    assert newer_prevails(*RESTATED, text)
