"""Measure how many secrets redaction finds, and how many false alarms it raises.

Run: python benchmarks/redaction.py

The labelled secrets are in tests/support/secrets.py. False alarms are counted per 100 KB in this
repository's code, in Python's standard library and in the real sessions of the tests. Exits with 1
if fewer than 95 % of the secrets are found.
"""

import json
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction.find_secrets import find_secrets
from context_compaction.redaction import strings_of

from tests.support.corpus import all_transcripts
from tests.support.secrets import LINES, TOKENS, is_found, labelled


def main() -> int:
    """Print recall, false alarms and speed."""
    cases = labelled()
    missed = Counter(kind for kind, text, secret in cases if not is_found(text, secret))
    recall = 1 - missed.total() / len(cases)
    kinds = len(TOKENS) + len(LINES)
    print(f"recall {recall:.3f} of {len(cases)} secrets of {kinds} kinds")
    print(f"missed: {dict(missed)}")
    root = Path(__file__).resolve().parent.parent
    code = [
        path.read_text(encoding="utf-8")
        for folder in ("compaction", "server", "tests", "examples")
        for path in sorted((root / folder).rglob("*.py"))
    ]
    sessions = [text for item in all_transcripts() for text in strings_of(item.payload)]
    library = Path(json.__file__).parent.parent
    standard = [
        path.read_text(encoding="utf-8", errors="replace")
        for path in sorted((*library.glob("*.py"), *library.glob("[a-k]*/*.py")))
    ]
    for name, texts in (("code", code), ("standard library", standard), ("sessions", sessions)):
        start = time.process_time()
        alarms = [
            (s.kind, text[s.start : s.stop][:60]) for text in texts for s in find_secrets(text)
        ]
        seconds, size = time.process_time() - start, sum(map(len, texts))
        share, speed = len(alarms) / size * 100_000, seconds / size * 1e9
        print(f"{name}: {len(alarms)} alarms in {size / 1000:,.0f} KB ({share:.2f} in 100 KB)")
        print(f"    {speed:,.0f} ms per MB")
        for alarm in dict.fromkeys(alarms):
            print("   ", *alarm)
    return 0 if recall >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
