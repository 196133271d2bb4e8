"""Where a text contains a secret, by the rules of detect-secrets and some of our own.

detect-secrets is loaded by the first text that is looked at. Every rule has words, of which one is
in each of its finds: a line is searched only by the rules whose words it contains. Rules of our own
are linear in any text; those of the library see long lines in pieces.
"""

import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from importlib import import_module
from math import log2
from typing import Any, TypeAlias

from context_compaction.messages.cache import RecentCache, once, text_key

# A piece of a long line, and how much of it is in the next piece too: more than any token has.
_PIECE_CHARS = 4_000
_OVERLAP_CHARS = 600

_Words: TypeAlias = tuple[str, ...]

# A module of detect-secrets, its class, and words in lower case.
_DETECTORS: tuple[tuple[str, str, _Words], ...] = (
    ("artifactory", "ArtifactoryDetector", ("akc", "artifactory", "jfrog")),
    ("aws", "AWSKeyDetector", ("akia", "asia", "abia", "acca", "a3t", "aws")),
    ("azure_storage_key", "AzureStorageKeyDetector", ("accountkey=",)),
    ("basic_auth", "BasicAuthDetector", ("://",)),
    ("cloudant", "CloudantDetector", ("cloudant",)),
    ("discord", "DiscordBotTokenDetector", ("discord",)),
    ("github_token", "GitHubTokenDetector", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    (
        "gitlab_token", "GitLabTokenDetector",
        ("glpat-", "gldt-", "glft-", "glsoat-", "glrt-", "glcbt-", "glimt-", "glptt-", "glagent-",
         "gloas-", "gr1348941"),
    ),
    ("mailchimp", "MailchimpDetector", ("-us",)),
    ("npm", "NpmDetector", (":_authtoken=",)),
    ("openai", "OpenAIDetector", ("t3blbkfj",)),
    ("pypi_token", "PypiTokenDetector", ("pypi-",)),
    ("sendgrid", "SendGridDetector", ("sg.",)),
    ("slack", "SlackDetector", ("xox", "hooks.slack.com")),
    ("square_oauth", "SquareOAuthDetector", ("sq0csp-",)),
    ("stripe", "StripeDetector", ("k_live_",)),
    ("telegram_token", "TelegramBotTokenDetector", ("telegram",)),
    ("twilio", "TwilioKeyDetector", ("twilio", "account_sid")),
)  # fmt: skip

# What detect-secrets 1.5 lacks: kind, words, pattern. Forms as their providers document them.
_TOKENS: tuple[tuple[str, _Words, str], ...] = (
    ("anthropic key", ("sk-ant-",), r"sk-ant-[A-Za-z0-9_-]{20,200}"),
    ("openai key", ("sk-",), r"(?<![\w-])sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,200}"),
    ("github token", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{22,255}"),
    ("google key", ("aiza",), r"(?<![\w-])AIza[A-Za-z0-9_-]{35}(?![\w-])"),
    ("google oauth", ("ya29.", "gocspx-"), r"(?:ya29\.[A-Za-z0-9_-]{20,400}|GOCSPX-[\w-]{20,60})"),
    ("hugging face token", ("hf_",), r"(?<!\w)hf_[A-Za-z0-9]{30,60}(?!\w)"),
    ("npm token", ("npm_",), r"(?<!\w)npm_[A-Za-z0-9]{36}(?!\w)"),
    ("slack token", ("xapp-", "xoxe"), r"(?:xapp|xoxe(?:\.xox[bp])?)-\d-[A-Za-z0-9-]{20,200}"),
    ("stripe key", ("k_test_", "whsec_"), r"(?:[rs]k_test_|whsec_)[0-9A-Za-z]{24,120}"),
    ("digitalocean token", ("_v1_",), r"(?<!\w)do[opr]_v1_[a-f0-9]{64}(?!\w)"),
    ("databricks token", ("dapi",), r"(?<!\w)dapi[a-f0-9]{32}(?!\w)"),
    ("vault token", ("hvs.", "hvb."), r"(?<!\w)hv[sb]\.[A-Za-z0-9_-]{24,200}"),
    ("azure secret", ("8q~",), r"(?<![\w~.-])[A-Za-z0-9_~.]{3}8Q~[A-Za-z0-9_~.-]{31,34}"),
    # The library's own rule leaves the signature.
    ("json web token", ("eyj",), r"(?<![\w-])eyJ[\w-]{8,4000}\.[\w-]{4,8000}(?:\.[\w-]{0,2000})?"),
    ("bearer token", ("bearer ",), r"(?i)(?<!\w)bearer +(?P<secret>[A-Za-z0-9_.~+/=-]{20,1000})"),
    ("basic auth", ("basic ",), r"(?i)(?<!\w)basic +(?P<secret>[A-Za-z0-9+/]{16,400}={0,2})(?!\w)"),
)  # fmt: skip

# A value that a name calls secret: after a colon or equals sign; in an element or an attribute
# (Maven, .NET); as an argument behind a name (PHP's define); in .netrc; and curl's user. In the
# arguments of a call, which are JSON in a string, there are backslashes before the quotes.
_NAMES = ("passw", "pwd", "secret", "token", "api")
_QUOTE = r"\\{0,3}['\"]"
_NAME = r"(?:passw(?:or)?d|pwd|secret|token|api[_-]?key)"
_VALUE = r"(?P<secret>[^\s'\"`<>{}$\\]{8,200})"
_NAMED: tuple[tuple[_Words, str], ...] = (
    (
        (*_NAMES, "access", "private", "auth", "credential"),
        rf"(?:{_NAME}|(?:access|private|auth)[_-]?key|credentials?)\w{{0,20}}(?:{_QUOTE})?"
        rf"\s{{0,3}}(?::=|=>|[:=])\s{{0,3}}(?:{_QUOTE})?"
        r"(?P<secret>[^\s'\"`,;<>{}()\[\]$\\]{8,200})",
    ),
    (("</",), rf"<[\w.:-]{{0,20}}{_NAME}>{_VALUE}</"),
    (
        ("key=", "name="),
        rf"(?:key|name)={_QUOTE}[\w.:-]{{0,40}}{_NAME}[\w.-]{{0,20}}{_QUOTE}\s{{1,9}}"
        rf"value={_QUOTE}{_VALUE}",
    ),
    (_NAMES, rf"{_NAME}{_QUOTE}\s{{0,3}},\s{{0,3}}{_QUOTE}{_VALUE}"),
    (("login ",), rf"login \S{{1,80}}\s{{1,9}}password\s{{1,9}}{_VALUE}"),
    (
        ("curl ",),
        rf"curl [^\n]{{0,300}}?(?:-u|--user)[ =]{{0,3}}(?:{_QUOTE})?[\w.@+-]{{1,80}}:{_VALUE}",
    ),
)
# A password in an address: the library's own rule ends at a sign that a careful writer would have
# escaped.
_IN_ADDRESS = (
    r"://[^\s/?#:@'\"<>]{0,100}"
    r":(?P<secret>[^\s/?#@'\"`<>{}$%][^\s/@'\"`<>{}]{2,200})@"
)
# Docker's credentials: a user and a password in base64.
_DOCKER_AUTH = r"auth\\{0,3}\"\s{0,3}:\s{0,3}\\{0,3}\"(?P<secret>[A-Za-z0-9+/]{8,400}={0,2})"
# A key of 8,192 bits has 6,400 characters. Without its end the mark alone is found.
_KEY_MARK = r"[A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_PRIVATE_KEY = re.compile(
    rf"-----BEGIN {_KEY_MARK}(?:(?:(?!-----).){{0,12000}}-----END {_KEY_MARK})?", re.DOTALL
)
_STANDS_FOR_ANOTHER = re.compile(
    r"(?i)example|placeholder|change.?me|your[_-]|dummy|redacted|xxxx|\*{3}|\.\.\."
    r"|^(?:true|false|null|none)|^https?:"
    r"|^(?:self|this|os|process|env|config|settings|request|response|ctx|args|options)[._]"
)


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a text contains a secret: its kind, its first character and the one after its last."""

    kind: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Rule:
    """One pattern.

    Attributes:
        kind: What it finds.
        words: In lower case; each find contains one of them.
        pattern: Its group `secret`, the first, is the secret; the whole match where it has none.
        is_secret: Whether what was found is one.
        is_linear: Whether its time is linear in any text, so that it needs no pieces.
    """

    kind: str
    words: _Words
    pattern: re.Pattern[str]
    is_secret: Callable[[str], bool] = lambda _: True
    is_linear: bool = True

    def find(self, line: str, offset: int) -> Iterator[Secret]:
        """The secrets in a line that begins at `offset`."""
        group = 1 if "secret" in self.pattern.groupindex else 0
        for start in _piece_starts(line, is_whole=self.is_linear):
            piece = line if self.is_linear else line[start : start + _PIECE_CHARS]
            for found in self.pattern.finditer(piece):
                if self.is_secret(found[group]):
                    at = offset + start
                    yield Secret(self.kind, at + found.start(group), at + found.end(group))


def find_secrets(text: str) -> tuple[Secret, ...]:
    """The secrets in `text`, in order; where two overlap, the one that begins first."""
    # Each gate looks at the same texts.
    return _found.get_or_compute(text_key(text), lambda: _find_secrets(text))


_found: RecentCache[tuple[Secret, ...]] = RecentCache()


def _find_secrets(text: str) -> tuple[Secret, ...]:
    found = sorted({*_private_keys(text), *_by_rules(text)}, key=lambda s: (s.start, -s.stop))
    apart: list[Secret] = []
    for secret in found:
        if not apart or secret.start >= apart[-1].stop:
            apart.append(secret)
    return tuple(apart)


def _private_keys(text: str) -> Iterator[Secret]:
    for found in _PRIVATE_KEY.finditer(text) if "PRIVATE KEY" in text else ():
        yield Secret("private key", found.start(), found.end())


def _by_rules(text: str) -> Iterator[Secret]:
    lowered = _lowered(text)
    words = {word for word in _words() if word in lowered}
    rules = [rule for rule in _rules() if not words.isdisjoint(rule.words)] if words else []
    offset = 0
    for line, small in zip(text.split("\n"), lowered.split("\n"), strict=True) if rules else ():
        found = {word for word in words if word in small}
        for rule in rules if found else ():
            if not found.isdisjoint(rule.words):
                yield from rule.find(line, offset)
        offset += len(line) + 1


def _lowered(text: str) -> str:
    """`text` in lower case, and the two letters that a pattern takes for "s" and "i" as these."""
    return (
        text
        .lower()
        .replace("\N{LATIN SMALL LETTER LONG S}", "s")
        .replace("\N{LATIN SMALL LETTER DOTLESS I}", "i")
    )


def _piece_starts(line: str, *, is_whole: bool) -> range:
    end = 1 if is_whole else max(1, len(line) - _OVERLAP_CHARS)
    return range(0, end, _PIECE_CHARS - _OVERLAP_CHARS)


@once
def _rules() -> tuple[_Rule, ...]:
    rules = [_Rule(kind, words, re.compile(pattern)) for kind, words, pattern in _TOKENS]
    rules += [
        _Rule("named secret", words, re.compile(pattern, re.IGNORECASE), _is_random)
        for words, pattern in _NAMED
    ]
    rules += [
        _Rule("url password", ("://",), re.compile(_IN_ADDRESS), _is_given),
        _Rule("basic auth", ("auth",), re.compile(_DOCKER_AUTH), _is_user_and_password),
    ]
    for module, name, words in _DETECTORS:
        detector: Any = getattr(import_module(f"detect_secrets.plugins.{module}"), name)
        kind = str(detector.secret_type).lower()
        rules += [_Rule(kind, words, found, is_linear=False) for found in detector.denylist]
    return tuple(rules)


@once
def _words() -> tuple[str, ...]:
    """The words of all rules, each once."""
    return tuple(dict.fromkeys(word for rule in _rules() for word in rule.words))


@once
def rules_version() -> str:
    """Names the rules: what one of them finds may not be found by rules of another name."""
    rules = [(rule.kind, rule.words, rule.pattern.pattern) for rule in _rules()]
    return blake2b(repr(rules).encode(), digest_size=8).hexdigest()


def _is_given(value: str) -> bool:
    """Whether a value is none that stands for another."""
    return not _STANDS_FOR_ANOTHER.search(value)


def _is_user_and_password(value: str) -> bool:
    try:
        user, _, password = b64decode(value, validate=True).decode().partition(":")
    except ValueError:
        return False
    return bool(user and password) and f"{user}{password}".isprintable()


def _is_random(value: str) -> bool:
    """Whether a value looks made by a machine or chosen as a password, not a name in code."""
    has_digit, has_letter = any("0" <= c <= "9" for c in value), any(map(str.isalpha, value))
    if not (has_digit and has_letter and _is_given(value)):
        return False
    shares = [value.count(sign) / len(value) for sign in set(value)]
    # Bits of a character; words of a language have less, keys 4 and more.
    return -sum(share * log2(share) for share in shares) >= 3.0
