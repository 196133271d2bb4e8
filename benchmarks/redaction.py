# ruff: noqa: E501 - one form a line
"""How many secrets redaction finds, and what it takes for one that is none.

    python benchmarks/redaction.py

The labelled set is made here, by a fixed seed, so that no file holds what looks like a key: tokens
in the forms that their providers document, in the places where agents meet them. A fifth of the
kinds are forms that no rule was written for. False alarms are counted on this repository's code and
on the real sessions of the tests, in 100 KB.
"""

import random
import string
import sys
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction.redaction import find_secrets, strings_of

from tests.support.corpus import all_transcripts

SEED = 20_261_122
EACH = 6
ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"

PLACES = (
    "export {name}={secret}",
    "{name}: {secret}",
    '  "{name}": "{secret}",',
    "{name} = '{secret}'  # for the staging server",
    "I put the key {secret} into the vault, please use it from there.",
    "2026-11-03T10:12:44Z DEBUG request with {name}={secret} took 12 ms",
)


def made(kind: str, rng: random.Random) -> tuple[str, str]:
    """The name that it goes by, and a secret of a kind."""

    def some(count: int, signs: str = ALNUM) -> str:
        return "".join(rng.choice(signs) for _ in range(count))

    forms: dict[str, Callable[[], tuple[str, str]]] = {
        "aws key id": lambda: ("AWS_ACCESS_KEY_ID", f"AKIA{some(16, string.ascii_uppercase)}"),
        "aws secret": lambda: ("aws_secret_access_key", some(40)),
        "github": lambda: ("GITHUB_TOKEN", f"ghp_{some(36)}"),
        "github app": lambda: ("GH_TOKEN", f"ghs_{some(36)}"),
        "github fine": lambda: ("GITHUB_PAT", f"github_pat_{some(22)}_{some(59)}"),
        "gitlab": lambda: ("GITLAB_TOKEN", f"glpat-{some(20)}"),
        "anthropic": lambda: ("ANTHROPIC_API_KEY", f"sk-ant-api03-{some(86)}-{some(6)}AA"),
        "openai": lambda: ("OPENAI_API_KEY", f"sk-proj-{some(60)}T3BlbkFJ{some(40)}"),
        "google": lambda: ("GOOGLE_API_KEY", f"AIza{some(35)}"),
        "hugging face": lambda: ("HF_TOKEN", f"hf_{some(34)}"),
        "slack": lambda: ("SLACK_BOT_TOKEN", f"xoxb-{some(12, string.digits)}-{some(13, string.digits)}-{some(24, string.ascii_lowercase)}"),
        "slack hook": lambda: ("hook", f"https://hooks.slack.com/services/T{some(8)}/B{some(8)}/{some(24)}"),
        "stripe": lambda: ("STRIPE_KEY", f"sk_live_{some(24)}"),
        "stripe test": lambda: ("stripe", f"sk_test_{some(24)}"),
        "sendgrid": lambda: ("SENDGRID", f"SG.{some(22)}.{some(43)}"),
        "npm": lambda: ("NPM_TOKEN", f"npm_{some(36)}"),
        "pypi": lambda: ("TWINE_PASSWORD", f"pypi-AgEIcHlwaS5vcmc{some(90)}"),
        "jwt": lambda: ("session", ".".join(b64encode(part.encode()).decode().rstrip("=") for part in ('{"alg":"HS256","typ":"JWT"}', '{"sub":"' + some(20) + '"}')) + "." + some(43)),
        "private key": lambda: ("key", f"-----BEGIN RSA PRIVATE KEY-----\n{some(64)}\n{some(64)}\n-----END RSA PRIVATE KEY-----"),
        "url password": lambda: ("DATABASE_URL", f"postgres://app:{some(16)}@db.internal:5432/main"),
        "password": lambda: ("db_password", f"{some(9)}7!{some(4)}"),
        "api key": lambda: ("api_key", some(32, HEX)),
        "client secret": lambda: ("client_secret", some(36)),
        "bearer": lambda: ("Authorization", f"Bearer {some(48)}"),
        "azure storage": lambda: ("conn", f"AccountName=acc;AccountKey={some(86)}=="),
        "digitalocean": lambda: ("DO_TOKEN", f"dop_v1_{some(64, HEX)}"),
        # No rule was written for these: some go by their name, the others are the misses.
        "mapbox": lambda: ("MAPBOX_ACCESS_TOKEN", f"pk.{some(60)}.{some(22)}"),
        "datadog": lambda: ("DD_API_KEY", some(32, HEX)),
        "heroku": lambda: ("HEROKU_API_KEY", f"{some(8, HEX)}-{some(4, HEX)}-{some(4, HEX)}-{some(4, HEX)}-{some(12, HEX)}"),
        "cloudflare": lambda: ("CF_API_TOKEN", some(40)),
        "notion": lambda: ("NOTION_TOKEN", f"ntn_{some(46)}"),
        "airtable": lambda: ("AIRTABLE_PAT", f"pat{some(14)}.{some(64, HEX)}"),
    }  # fmt: skip
    return forms[kind]()


KINDS = (
    "aws key id", "aws secret", "github", "github app", "github fine", "gitlab", "anthropic",
    "openai", "google", "hugging face", "slack", "slack hook", "stripe", "stripe test", "sendgrid",
    "npm", "pypi", "jwt", "private key", "url password", "password", "api key", "client secret",
    "bearer", "azure storage", "digitalocean", "mapbox", "datadog", "heroku", "cloudflare",
    "notion", "airtable",
)  # fmt: skip
# What has no form of its own is a secret only where something calls it one.
NAMELESS = frozenset({"aws secret", "password", "api key", "client secret", "datadog", "heroku",
                      "cloudflare", "mapbox"})  # fmt: skip


def labelled() -> list[tuple[str, str, str]]:
    """Kind, text and the secret in it."""
    rng = random.Random(SEED)
    cases: list[tuple[str, str, str]] = []
    for kind in KINDS:
        for place in PLACES[:EACH]:
            name, secret = made(kind, rng)
            if "{name}" not in place and kind in NAMELESS:
                continue
            cases.append((kind, place.format(name=name, secret=secret), secret))
    return cases


def is_found(text: str, secret: str) -> bool:
    """Whether nothing of use is left of the secret: of its last 12 characters, none."""
    tail = secret.rstrip("-").rstrip("\n=")[-12:] if "PRIVATE" not in secret else secret[40:80]
    if secret.startswith("postgres://"):
        tail = secret.split(":")[2].split("@")[0]
    at = text.index(tail)
    return any(found.start <= at and at + len(tail) <= found.stop for found in find_secrets(text))


def main() -> int:
    cases = labelled()
    missed = Counter(kind for kind, text, secret in cases if not is_found(text, secret))
    recall = 1 - missed.total() / len(cases)
    print(f"recall {recall:.3f} of {len(cases)} secrets of {len(KINDS)} kinds")
    print(f"missed: {dict(missed)}")
    root = Path(__file__).resolve().parent.parent
    code = [
        path.read_text(encoding="utf-8")
        for folder in ("compaction", "server", "tests", "examples")
        for path in sorted((root / folder).rglob("*.py"))
    ]
    sessions = [text for given in all_transcripts() for text in strings_of(given.payload)]
    for name, texts in (("code", code), ("sessions", sessions)):
        began = time.process_time()
        alarms = [
            (s.kind, text[s.start : s.stop][:60]) for text in texts for s in find_secrets(text)
        ]
        seconds, size = time.process_time() - began, sum(map(len, texts))
        print(f"{name}: {len(alarms)} alarms in {size / 1000:,.0f} KB "
              f"({len(alarms) / size * 100_000:.2f} in 100 KB), {seconds / size * 1e9:,.0f} ms for a MB")  # fmt: skip
        for alarm in dict.fromkeys(alarms):
            print("   ", *alarm)
    return 0 if recall >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
