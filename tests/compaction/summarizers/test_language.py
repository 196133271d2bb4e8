"""A warning reports a summary in another language than the user's."""

from dataclasses import replace

import pytest
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.summarizers.llm.check import language_of

from tests.support.promises import temporary_archive
from tests.support.small import agent, user

TEXTS = {
    "English": "Please fix the bug in the parser. We must never delete data, and I want a report.",
    "German": "Bitte behebe den Fehler im Parser. Wir dürfen niemals Daten löschen und ich will.",
    "French": "Corrige l'erreur dans le parseur. Il ne faut pas supprimer les données et je veux.",
    "Spanish": "Corrige el error en el parser. No borres los datos y después quiero un informe.",
    "Portuguese": "Corrija o erro no parser. Não apague os dados e depois quero uma lista.",
    "Italian": "Correggi l'errore nel parser. Non cancellare i dati e poi voglio una lista.",
    "Dutch": "Los de fout in de parser op. We mogen nooit data verwijderen en ik wil een verslag.",
    "Chinese": "请修复 parser.py 中的错误。绝不能删除数据。然后我想要一份 report。",
    "Japanese": "parser.py のエラーを修正してください。データを削除しないでください。",
    "Korean": "parser.py의 오류를 수정해 주세요. 데이터를 절대 삭제하지 마세요.",
    "Cyrillic": "Исправь ошибку в parser.py. Никогда не удаляй данные.",
    "Arabic": "أصلح الخطأ في المحلل. لا تحذف البيانات أبداً.",
}  # fmt: skip
PASTED = "```\nThe parser is at the end of the file, and it was not closed in the loop\n```"


@pytest.mark.parametrize("language", TEXTS)
def test_language_is_recognized_by_script_and_common_words(language: str) -> None:
    assert language_of(TEXTS[language]) == language
    assert language_of(f"{TEXTS[language]}\n{PASTED}") == language
    assert language_of(f"## Goal and latest request\n{TEXTS[language]}") == language


@pytest.mark.parametrize("text", ["", "ok", "src/a.py 12 4711", "```\nthe and is\n```"])
def test_language_is_empty_when_text_has_no_common_words(text: str) -> None:
    assert language_of(text) == ""


@pytest.mark.parametrize("language", ["English", "German", "Chinese"])
@pytest.mark.parametrize("written", ["English", "German", "Japanese"])
async def test_warning_names_language_when_summary_has_another(language: str, written: str) -> None:
    messages = [user(f"{TEXTS[language]}\n{PASTED}")]
    for number in range(12):
        messages += [
            agent(f"The folder {number} is done. " * 40),
            user(f"{TEXTS[language]} {number}"),
        ]
    request = CompactRequest(format="openai-chat", target_tokens=2_000, summarizer="host")
    summary = f"## Goal and latest request\n{TEXTS[written]}\n## Next\n{TEXTS[written]}"
    async with temporary_archive() as archive:
        first = await compact(messages, request, archive=archive)
        assert first.summary_prompt is not None
        second = replace(request, summary=summary, continuation=first.summary_prompt.continuation)
        result = await compact(messages, second, archive=archive)
    warnings = [text for text in result.warnings if text.startswith("The summary is in ")]
    assert len(warnings) == (language != written)
