"""How many of the files that a session changed come out whole, and whether they are right.

Run: python benchmarks/file_replay.py [SESSION.jsonl[.gz] …]

The real sessions of the repository, or pi sessions by name. A later whole read of a file is the
proof: what replaying gave just before it must be the text that it shows. Where it is not, somebody
else has changed the file, and the conversation may have said so in words.
"""

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction import formats
from context_compaction.activity.file_replay import replay_files
from context_compaction.activity.replayed_file import ReplayedFile
from context_compaction.messages.model import Messages

from tests.support.corpus import all_transcripts

PREFIXES = ("pi/", "swe-agent/", "claude-code/")


def sessions(paths: list[str]) -> Iterator[tuple[str, Messages]]:
    """Name and messages of each session."""
    for path in paths:
        data = Path(path).read_bytes()
        text = (gzip.decompress(data) if path.endswith(".gz") else data).decode()
        rows = [json.loads(line) for line in text.split("\n") if line.strip()]
        raws = [row["message"] for row in rows if row.get("type") == "message"]
        yield Path(path).name, formats.parse(raws, format="pi")
    if not paths:
        for transcript in all_transcripts():
            if transcript.name.startswith(PREFIXES):
                yield transcript.name, formats.parse(transcript.payload, format=transcript.format)


def proofs(messages: Messages) -> Counter[str]:
    """How often a later whole read agreed with what replaying gave, and how often it did not."""
    found: Counter[str] = Counter()
    for at in range(1, len(messages)):
        after = replay_files(messages, until=at)
        for file in after.values():
            if file.seen_at != at or file.read_at != at or file.text is None:
                continue
            before = replay_files(messages, until=at - 1).get(file.path)
            if before is not None and before.text is not None:
                found[_proof(before, file.text)] += 1
        unchanged = [f for f in after.values() if f.read_at == at and f.edits and f.is_sure]
        found["sure, agrees"] += len(unchanged)
    return found


def _proof(before: ReplayedFile, text: str) -> str:
    agrees = (before.text or "").rstrip().splitlines() == text.rstrip().splitlines()
    return f"{'sure' if before.is_sure else 'doubted'}, {'agrees' if agrees else 'differs'}"


def main() -> None:
    """Print a row for each session with changed files, and the proofs of all."""
    print("| session | changed files | whole | of these sure | parts | edits replayed |")
    print("|---|---|---|---|---|---|")
    proof: Counter[str] = Counter()
    for name, messages in sessions(sys.argv[1:]):
        changed = [
            file
            for file in replay_files(messages).values()
            if file.is_changed and not file.is_deleted
        ]
        if not changed:
            continue
        whole = [file for file in changed if file.text is not None]
        sure = sum(file.is_sure for file in whole)
        parts = sum(bool(file.parts or file.loose) for file in changed)
        edits = sum(file.edits for file in changed)
        print(f"| {name} | {len(changed)} | {len(whole)} | {sure} | {parts} | {edits} |")
        proof += proofs(messages)
    print(f"\nLater whole reads: {dict(proof)}")


if __name__ == "__main__":
    main()
