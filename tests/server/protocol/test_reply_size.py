"""The size of a search's reply, which is bounded without the tokenizer's vocabulary."""

import base64
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from context_compaction.tokens.counter import counter_for
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.reply_size import most_tokens
from mcp_server_compaction.protocol.tools.answers import MAX_ANSWER_CHARS

from tests.server.helpers import answer_of, connect, text_of
from tests.support.corpus import all_transcripts

SEARCH_ONCE = """
import sys, anyio
from pathlib import Path
from context_compaction import formats
from context_compaction.archive import Query
from context_compaction.archive.local.archive import open_archive
from mcp_server_compaction.protocol.tools.search_transcript import search_briefly
async def main():
    folder = Path(sys.argv[1])
    async with open_archive(folder / "archive", index_root=folder / "index") as archive:
        said = formats.parse([{"role": "user", "content": "the cache was emptied"}])
        await archive.append("s", said, format="anthropic")
        return await search_briefly(archive, Query("cache"))
print(len(anyio.run(main).hits), "tiktoken" in sys.modules)
"""
NOISE = random.Random(7)
WRITTEN = {
    "chinese": "缓存在上线后被清空,因为部署脚本删除了旧的目录。" * 20,
    "japanese": "デプロイの後でキャッシュが消えました。" * 20,
    "korean": "배포 후에 캐시가 비워졌습니다. 스크립트가 이전 폴더를 삭제했기 때문입니다." * 20,
    "russian": "После выпуска кэш был очищен, потому что скрипт удалил каталог. " * 20,
    "thai": "แคชถูกล้างหลังจากการเผยแพร่เนื่องจากสคริปต์ลบโฟลเดอร์เก่า" * 20,
    "german": "Nach der Auslieferung war der Zwischenspeicher leer, das Skript löschte ihn. " * 20,
    "marks": "if(!(x>=0&&y<=10)){return[...a,{b:[c]}];}//###===>>>---***&&&|||%%%$$$@@@!!!" * 20,
    "emoji": "🚀 ✅ 🔥 ❌ 🧪 " * 50,
    "base64": base64.b64encode(NOISE.randbytes(3000)).decode(),
    "hex": NOISE.randbytes(3000).hex(),
    "capitals": "".join(NOISE.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=3000)),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_people_and_programs_write_has_no_more_tokens_than_estimated(name: str) -> None:
    assert most_tokens(WRITTEN[name]) >= counter_for("gpt-4o").text(WRITTEN[name])


CODE = "def parse(text):\n\tfor line in text.split():\n\t\tif line.strip():\n\t\t\tyield line\n"


@pytest.mark.parametrize(
    ("text", "most"), [(json.dumps(CODE * 30), 1.15), (WRITTEN["japanese"], 2.2)]
)
def test_escapes_endings_and_kana_are_estimated_from_above_and_near(text: str, most: float) -> None:
    assert 1.0 <= most_tokens(text) / counter_for("gpt-4o").text(text) < most


def test_real_transcripts_are_estimated_from_above_and_not_far() -> None:
    count = counter_for("gpt-4o").text
    for transcript in all_transcripts()[::12]:
        text = json.dumps(transcript.payload, ensure_ascii=False, indent=1)[:60_000]
        assert 1.0 <= most_tokens(text) / count(text) < 1.6, transcript.name


async def test_a_page_of_hits_is_nearly_as_long_as_it_may_be(config: Config) -> None:
    said = "The cache was emptied because the deploy script removed the folder of the day before. "
    messages = [{"role": "user", "content": f"{n}. {said * 12}"} for n in range(12)]
    async with connect(config) as client:
        sent = {"messages": messages, "mode": "record", "session_id": "cache"}
        await client.call_tool("compact_messages", sent)
        result = await client.call_tool("search_transcript", {"query": "why was the cache emptied"})
    assert 1_500 < counter_for("gpt-4o").text(text_of(result)) <= 2_400
    assert len(text_of(result)) <= MAX_ANSWER_CHARS
    assert answer_of(result)["note"].endswith("for more.")


def test_a_first_search_loads_no_vocabulary(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SEARCH_ONCE, str(tmp_path)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=150,
        check=True,
    )
    assert done.stdout.split() == ["1", "False"]


@pytest.mark.parametrize("query", ["error test file", "cache"])
async def test_a_page_of_hits_stays_below_its_bound_of_tokens(config: Config, query: str) -> None:
    lines = [f"{name} {text[:900]} cache error test file" for name, text in WRITTEN.items()]
    messages = [{"role": "user", "content": line} for line in lines]
    async with connect(config) as client:
        sent = {"messages": messages, "mode": "record", "session_id": "s" * 100}
        await client.call_tool("compact_messages", sent)
        result = await client.call_tool("search_transcript", {"query": query})
    assert answer_of(result)["hits"]
    assert counter_for("gpt-4o").text(text_of(result)) <= 2_400
