"""Where a text contains a secret: tokens in their providers' forms, and values that a name marks.

Every rule has words, one of which is in each of its finds: a line is searched only by the rules
whose words it contains. All patterns are linear in any text.
"""

import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import log2
from typing import TypeAlias

from context_compaction.messages.cache import RecentCache, once, text_key

_Words: TypeAlias = tuple[str, ...]

# A value that a name calls secret: after a colon or equals sign; in an element or an attribute
# (Maven, .NET); as an argument behind a name (PHP's define); in .netrc; and curl's user. In the
# arguments of a call, which are JSON in a string, there are backslashes before the quotes.
_NAMES = ("passw", "pwd", "secret", "token", "api")
_QUOTE = r"\\{0,3}['\"]"
_NAME = r"(?:passw(?:or)?d|pwd|secret|token|api[_-]?key)"
_VALUE = r"(?P<secret>[^\s'\"`<>{}$\\]{8,200})"

# Kind, words in lower case, and pattern. Forms of tokens are as their providers document them. The
# group `secret` is the secret, or the whole match where there is none. A pattern that ignores case
# does so in ASCII alone, as its words do.
_FORMS: tuple[tuple[str, _Words, str], ...] = (
    ("anthropic key", ("sk-ant-",), r"sk-ant-[A-Za-z0-9_-]{20,200}"),
    ("openai key", ("sk-",), r"(?<![\w-])sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,200}"),
    ("openai key", ("t3blbkfj",), r"(?<![\w-])sk-[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}"),
    ("github token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9_]{36,255}"),
    ("github token", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{22,255}"),
    (
        "gitlab token",
        ("glpat-", "gldt-", "glft-", "glsoat-", "glrt-", "glcbt-", "glimt-", "glptt-", "glagent-",
         "gloas-"),
        r"(?<!\w)gl(?:pat|dt|ft|soat|rt|cbt|imt|ptt|agent|oas)-[A-Za-z0-9_-]{20,1024}",
    ),
    ("google key", ("aiza",), r"(?<![\w-])AIza[A-Za-z0-9_-]{35}(?![\w-])"),
    ("google oauth", ("ya29.", "gocspx-"), r"(?:ya29\.[A-Za-z0-9_-]{20,400}|GOCSPX-[\w-]{20,60})"),
    (
        "aws access key", ("akia", "asia", "abia", "acca", "a3t"),
        r"(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[0-9A-Z]{16}",
    ),
    (
        "aws access key", ("aws",),
        rf"(?ia)aws.{{0,20}}?(?:key|pw|pass|token).{{0,20}}?{_QUOTE}(?P<secret>[0-9a-z/+]{{40}})['\"\\]",
    ),
    ("azure storage key", ("accountkey=",), r"AccountKey=[a-zA-Z0-9+/=]{88}"),
    ("azure secret", ("8q~",), r"(?<![\w~.-])[A-Za-z0-9_~.]{3}8Q~[A-Za-z0-9_~.-]{31,34}"),
    ("artifactory token", ("akc",), r"(?<!\w)AKC[a-zA-Z0-9]{10,200}(?!\w)"),
    ("discord token", ("discord",), r"[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27}"),
    ("telegram token", ("telegram",), r"\d{8,10}:[0-9A-Za-z_-]{35}"),
    ("twilio key", ("twilio", "account_sid"), r"(?:AC|SK)[a-z0-9]{32}"),
    ("mailchimp key", ("-us",), r"(?<!\w)[0-9a-z]{32}-us[0-9]{1,2}"),
    ("sendgrid key", ("sg.",), r"SG\.[a-zA-Z0-9_-]{22}\.[a-zA-Z0-9_-]{43}"),
    ("square secret", ("sq0csp-",), r"sq0csp-[0-9A-Za-z_-]{43}"),
    ("hugging face token", ("hf_",), r"(?<!\w)hf_[A-Za-z0-9]{30,60}(?!\w)"),
    ("npm token", ("npm_",), r"(?<!\w)npm_[A-Za-z0-9]{36}(?!\w)"),
    ("npm token", (":_authtoken=",), r":_authToken=\s{0,3}(?P<secret>[A-Fa-f0-9-]{36})"),
    ("pypi token", ("pypi-",), r"pypi-AgE[A-Za-z0-9_-]{70,400}"),
    ("slack token", ("xox",), r"(?ia)xox[abposr]-(?:\d{1,20}-){1,6}[a-z0-9]{1,200}"),
    ("slack token", ("xapp-", "xoxe"), r"(?:xapp|xoxe(?:\.xox[bp])?)-\d-[A-Za-z0-9-]{20,200}"),
    (
        "slack token", ("hooks.slack.com",),
        r"https://hooks\.slack\.com/services/T\w{1,40}/B\w{1,40}/\w{1,80}",
    ),
    ("stripe key", ("k_test_", "k_live_", "whsec_"), r"(?:[rs]k_(?:test|live)_|whsec_)\w{24,120}"),
    ("digitalocean token", ("_v1_",), r"(?<!\w)do[opr]_v1_[a-f0-9]{64}(?!\w)"),
    ("databricks token", ("dapi",), r"(?<!\w)dapi[a-f0-9]{32}(?!\w)"),
    ("vault token", ("hvs.", "hvb."), r"(?<!\w)hv[sb]\.[A-Za-z0-9_-]{24,200}"),
    ("json web token", ("eyj",), r"(?<![\w-])eyJ[\w-]{8,4000}\.[\w-]{4,8000}(?:\.[\w-]{0,2000})?"),
    ("bearer token", ("bearer ",), r"(?ia)(?<!\w)bearer +(?P<secret>[A-Za-z0-9_.~+/=-]{20,1000})"),
    # A user and a password in base64: in a header, and in Docker's file.
    ("basic auth", ("basic ",), r"(?ia)(?<!\w)basic +(?P<secret>[A-Za-z0-9+/]{8,400}={0,2})(?!\w)"),
    (
        "basic auth", ("auth",),
        r"(?ia)auth\\{0,3}\"\s{0,3}:\s{0,3}\\{0,3}\"(?P<secret>[A-Za-z0-9+/]{8,400}={0,2})",
    ),
    (
        "url password", ("://",),
        r"://[^\s/?#:@'\"<>]{0,100}"
        r":(?P<secret>[^\s/?#@'\"`<>{}$%][^\s/@'\"`<>{}]{2,200})@",
    ),
    (
        "named secret",
        (*_NAMES, "access", "private", "auth", "credential"),
        rf"(?ia)(?:{_NAME}|(?:access|private|auth)[_-]?key|credentials?)\w{{0,20}}(?:{_QUOTE})?"
        rf"\s{{0,3}}(?::=|=>|[:=])\s{{0,3}}(?:{_QUOTE})?"
        r"(?P<secret>[^\s'\"`,;<>{}()\[\]$\\]{8,200})",
    ),
    ("named secret", ("</",), rf"(?ia)<[\w.:-]{{0,20}}{_NAME}>{_VALUE}</"),
    (
        "named secret", ("key=", "name="),
        rf"(?ia)(?:key|name)={_QUOTE}[\w.:-]{{0,40}}{_NAME}[\w.-]{{0,20}}{_QUOTE}\s{{1,9}}"
        rf"value={_QUOTE}{_VALUE}",
    ),
    ("named secret", _NAMES, rf"(?ia){_NAME}{_QUOTE}\s{{0,3}},\s{{0,3}}{_QUOTE}{_VALUE}"),
    ("named secret", ("login ",), rf"(?ia)login \S{{1,80}}\s{{1,9}}password\s{{1,9}}{_VALUE}"),
    (
        "named secret", ("curl ",),
        rf"(?ia)curl [^\n]{{0,300}}?(?:-u|--user)[ =]{{0,3}}(?:{_QUOTE})?[\w.@+-]{{1,80}}:{_VALUE}",
    ),
)  # fmt: skip
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
    """One pattern of `_FORMS`; `is_secret` decides about what it finds."""

    kind: str
    words: _Words
    pattern: re.Pattern[str]
    is_secret: Callable[[str], bool] | None

    def find(self, line: str, offset: int) -> Iterator[Secret]:
        """The secrets in a line that begins at `offset`."""
        group = 1 if self.pattern.groups else 0
        for found in self.pattern.finditer(line):
            if self.is_secret is None or self.is_secret(found[group]):
                yield Secret(self.kind, offset + found.start(group), offset + found.end(group))


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
    lowered = text.lower()
    words = {word for word in _words() if word in lowered}
    rules = [rule for rule in _rules() if not words.isdisjoint(rule.words)] if words else []
    offset = 0
    for line, small in zip(text.split("\n"), lowered.split("\n"), strict=True) if rules else ():
        found = {word for word in words if word in small}
        for rule in rules if found else ():
            if not found.isdisjoint(rule.words):
                yield from rule.find(line, offset)
        offset += len(line) + 1


@once
def _rules() -> tuple[_Rule, ...]:
    return tuple(
        _Rule(kind, words, re.compile(pattern), _CHECKS.get(kind))
        for kind, words, pattern in _FORMS
    )


@once
def _words() -> tuple[str, ...]:
    """The words of all rules, each once."""
    return tuple(dict.fromkeys(word for rule in _rules() for word in rule.words))


def rules_version() -> str:
    """Names the rules: what one of them finds may not be found by rules of another name."""
    return blake2b(repr(_FORMS).encode(), digest_size=8).hexdigest()


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


_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "named secret": _is_random,
    "url password": _is_given,
    "basic auth": _is_user_and_password,
}
