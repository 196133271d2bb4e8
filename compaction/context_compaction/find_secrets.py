"""Where a text contains a secret, by a kept detector's rules and some of our own.

The rules are those of detect-secrets, with the few providers and forms that it lacks. It is loaded
by the first text that is looked at. Every rule has words of which one must occur. Rules of our own
are linear in any text; those of the library see one line at a time, long ones in pieces.
"""

import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from importlib import import_module
from math import log2
from typing import TYPE_CHECKING, Any

from context_compaction.messages.cache import RecentCache, once, text_key

if TYPE_CHECKING:
    import tiktoken

# A piece of a long line, and how much of it stands in the next piece too: longer than any token.
_PIECE_CHARS = 4_000
_OVERLAP_CHARS = 600
# What stands between the marks of a private key; a key of 8,192 bits has 6,400 characters.
_KEY_CHARS = 12_000
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----")

# Detector's module and class, and words (lower case) of which one stands in each of its finds.
_DETECTORS = (
    ("artifactory", "ArtifactoryDetector", ("akc", "artifactory", "jfrog")),
    ("aws", "AWSKeyDetector", ("akia", "asia", "abia", "acca", "a3t", "aws")),
    ("azure_storage_key", "AzureStorageKeyDetector", ("accountkey=",)),
    ("basic_auth", "BasicAuthDetector", ("://",)),
    ("cloudant", "CloudantDetector", ("cloudant",)),
    ("discord", "DiscordBotTokenDetector", ("discord",)),
    ("github_token", "GitHubTokenDetector", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    (
        "gitlab_token",
        "GitLabTokenDetector",
        (
            "glpat-",
            "gldt-",
            "glft-",
            "glsoat-",
            "glrt-",
            "glcbt-",
            "glimt-",
            "glptt-",
            "glagent-",
            "gloas-",
            "gr1348941",
        ),
    ),
    ("jwt", "JwtTokenDetector", ("eyj",)),
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
)

# What detect-secrets 1.5 lacks: kind, words, pattern. Forms as their providers document them.
_MORE = (
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
    ("shopify token", ("shp",), r"(?<!\w)shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}(?!\w)"),
    ("vault token", ("hvs.", "hvb."), r"(?<!\w)hv[sb]\.[A-Za-z0-9_-]{24,200}"),
    # The library's own rule leaves the signature.
    ("json web token", ("eyj",), r"(?<![\w-])eyJ[\w-]{8,4000}\.[\w-]{4,8000}(?:\.[\w-]{0,2000})?"),
    ("linear key", ("lin_api_",), r"lin_api_[A-Za-z0-9]{32,60}"),
    ("sentry token", ("sntry",), r"sntry[su]_[A-Za-z0-9+/=_-]{40,300}"),
    ("azure secret", ("8q~",), r"(?<![\w~.-])[A-Za-z0-9_~.]{3}8Q~[A-Za-z0-9_~.-]{31,34}"),
    ("bearer token", ("bearer ",), r"(?i)(?<!\w)bearer +(?P<secret>[A-Za-z0-9_.~+/=-]{20,1000})"),
    ("basic auth", ("basic ",), r"(?i)(?<!\w)basic +(?P<secret>[A-Za-z0-9+/]{16,400}={0,2})(?!\w)"),
)  # fmt: skip

# A value that a name calls secret: quoted, or after a colon or equals sign. In the arguments of a
# call, which are JSON in a string, there are backslashes before the quotes.
_NAMED_WORDS = ("passw", "pwd", "secret", "token", "api", "access", "private", "auth", "credential")
_QUOTE = r"\\{0,3}['\"]"
_PASSWORD = r"(?:passw(?:or)?d|passwd|pwd|secret|token|api[_-]?key)"  # noqa: S105 - a name of one
_NAMED = re.compile(
    r"(?i)(?:passw(?:or)?d|passwd|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key"
    rf"|auth[_-]?key|credentials?)\w{{0,20}}(?:{_QUOTE})?\s{{0,3}}(?::=|=>|[:=])\s{{0,3}}(?:{_QUOTE})?"
    r"(?P<secret>[^\s'\"`,;<>{}()\[\]$\\]{8,200})"
)
# A password in an address: the library's own rule ends at a sign that a careful writer would have
# escaped.
_URL_PASSWORD = re.compile(
    r"://[^\s/?#:@'\"<>]{0,100}:(?P<secret>[^\s/?#@'\"`<>{}$%][^\s/@'\"`<>{}]{2,200})@"
)
# The same as a named value in forms of their own: elements and attributes (Maven, .NET), arguments
# behind a name (PHP's define), .netrc, and curl's user.
_VALUE = r"(?P<secret>[^\s'\"`<>{}$\\]{8,200})"
_FORMS = (
    (("</",), rf"<[\w.:-]{{0,20}}(?i:{_PASSWORD})>{_VALUE}</"),
    (
        ("key=", "name="),
        rf"(?i)(?:key|name)={_QUOTE}[\w.:-]{{0,40}}{_PASSWORD}[\w.-]{{0,20}}{_QUOTE}\s{{1,9}}"
        rf"value={_QUOTE}{_VALUE}",
    ),
    (_NAMED_WORDS[:5], rf"(?i){_PASSWORD}{_QUOTE}\s{{0,3}},\s{{0,3}}{_QUOTE}{_VALUE}"),
    (("login ",), rf"(?i)login \S{{1,80}}\s{{1,9}}password\s{{1,9}}{_VALUE}"),
    (
        ("curl ",),
        rf"curl [^\n]{{0,300}}?(?:-u|--user)[ =]{{0,3}}(?:{_QUOTE})?[\w.@+-]{{1,80}}:{_VALUE}",
    ),
)
# Docker's credentials: a user and a password in base64.
_DOCKER_AUTH = re.compile(
    r"auth\\{0,3}\"\s{0,3}:\s{0,3}\\{0,3}\"(?P<secret>[A-Za-z0-9+/]{8,400}={0,2})"
)
_NO_SECRET = re.compile(
    r"(?i)example|placeholder|change.?me|your[_-]|dummy|redacted|xxxx|\*{3}|\.\.\.|^(?:true|false|null|none)"
    r"|^(?:self|this|os|process|env|config|settings|request|response|ctx|args|options)[._]|^https?:"
)
# Those of rules that stand in text of every kind.
_FREQUENT_WORDS = (*_NAMED_WORDS, "://")
# Letters that a pattern takes for "s" and "i" where case does not matter, and `lower` does not.
_FOLDED = ("\N{LATIN SMALL LETTER LONG S}", "\N{LATIN SMALL LETTER DOTLESS I}")
_LEAST_ENTROPY_BITS = 3.0  # a character; words of a language have less, keys 4 and more


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
        is_bounded: Whether its time is linear in any text, so that it needs no pieces.
        begins_with_word: Whether each find begins with one of the words.
        is_secret: Whether what was found is one.
    """

    kind: str
    words: tuple[str, ...]
    pattern: re.Pattern[str]
    is_bounded: bool = True
    begins_with_word: bool = False
    is_secret: Callable[[str], bool] = lambda _: True

    def find(self, text: str, offset: int, lowered: str, words: Set[str]) -> Iterator[Secret]:
        """The secrets in a text that begins at `offset` and, in lower case, contains `words`."""
        group = 1 if "secret" in self.pattern.groupindex else 0
        for found in self._matches(text, lowered, words):
            if self.is_secret(found[group]):
                yield Secret(self.kind, offset + found.start(group), offset + found.end(group))

    def _matches(self, text: str, lowered: str, words: Set[str]) -> Iterator[re.Match[str]]:
        """What `finditer` returns, which tries every character where case does not matter."""
        is_aligned = len(lowered) == len(text) and not any(letter in text for letter in _FOLDED)
        if not (self.begins_with_word and is_aligned):
            yield from self.pattern.finditer(text)
            return
        begins = words & set(self.words)
        stop = 0
        for start in sorted({at for word in begins for at in _places(word, lowered)}):
            if start >= stop and (found := self.pattern.match(text, start)):
                yield found
                stop = found.end()


def _places(word: str, text: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


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
    if "-----BEGIN " not in text:
        return
    ends = _KEY_ENDS.finditer(text) if "-----END " in text else iter(())
    end = next(ends, None)
    for begin in _KEY_BEGINS.finditer(text):
        while end is not None and end.start() < begin.end():
            end = next(ends, None)
        is_whole = end is not None and end.start() - begin.end() < _KEY_CHARS
        yield Secret("private key", begin.start(), end.end() if end and is_whole else begin.end())


def _by_rules(text: str) -> Iterator[Secret]:
    lowered = text.lower()
    words = _words_in(lowered)
    rules = [rule for rule in _rules() if not words.isdisjoint(rule.words)] if words else []
    others = [rule for rule in rules if not rule.is_bounded]
    for rule in rules:
        if rule.is_bounded:
            yield from rule.find(text, 0, lowered, words)
    for offset, piece in _pieces(text, lowered, others):
        small = piece.lower()
        for rule in others:
            if any(word in small for word in rule.words):
                yield from rule.find(piece, offset, small, words)


def _pieces(text: str, lowered: str, rules: Sequence[_Rule]) -> Iterator[tuple[int, str]]:
    """The lines with a word of `rules`, and their places; long ones in pieces that overlap."""
    words = [word for rule in rules for word in rule.words if word in lowered]
    lines = zip(text.split("\n"), lowered.split("\n"), strict=True) if words else ()
    at = 0
    for line, small in lines:
        if any(word in small for word in words):
            end = max(1, len(line) - _OVERLAP_CHARS)
            for start in range(0, end, _PIECE_CHARS - _OVERLAP_CHARS):
                yield at + start, line[start : start + _PIECE_CHARS]
        at += len(line) + 1


def _words_in(lowered: str) -> Set[str]:
    """The words of all rules that a text contains."""
    words = {word for word in _FREQUENT_WORDS if word in lowered}
    rare = _rare_words()
    found = {rare.decode([token]) for token in set(rare.encode_ordinary(lowered))}
    hidden = {other for word in found for other in _hidden_by(word)}
    return words | found | {word for word in hidden if word in lowered}


@cache
def _hidden_by(word: str) -> Sequence[str]:
    """The words that share characters with `word` where they overlap."""
    return [other for other in _words() if _shares(word, other)]


def _shares(word: str, other: str) -> bool:
    ends = range(1, min(len(word), len(other)) + 1)
    return (
        word in other
        or other in word
        or any(word[-n:] == other[:n] or other[-n:] == word[:n] for n in ends)
    )


@once
def _rules() -> tuple[_Rule, ...]:
    rules = [
        _Rule(kind, words, re.compile(pattern), begins_with_word="(?i)" in pattern)
        for kind, words, pattern in _MORE
    ]
    for module, name, words in _DETECTORS:
        detector: Any = getattr(import_module(f"detect_secrets.plugins.{module}"), name)
        kind = str(detector.secret_type).lower()
        rules += [_Rule(kind, words, pattern, is_bounded=False) for pattern in detector.denylist]
    named = partial(_Rule, "named secret", is_secret=_is_random)
    return (
        *rules,
        named(_NAMED_WORDS, _NAMED, begins_with_word=True),
        *(
            named(words, re.compile(pattern), begins_with_word="(?i)" in pattern)
            for words, pattern in _FORMS
        ),
        _Rule("url password", ("://",), _URL_PASSWORD, is_secret=_is_given),
        _Rule("basic auth", ("auth",), _DOCKER_AUTH, is_secret=_is_user_and_password),
    )


@once
def _words() -> tuple[str, ...]:
    """The words of all rules, each once."""
    return tuple(dict.fromkeys(word for rule in _rules() for word in rule.words))


@once
def _rare_words() -> "tiktoken.Encoding":
    """Makes a token of each rare word, and nothing of what stands between.

    A text is read once for all sixty words, in a tenth of the time that asking for each takes.
    Words that overlap hide each other.
    """
    import tiktoken

    words = [word for word in _words() if word not in _FREQUENT_WORDS]
    return tiktoken.Encoding(
        "rare words",
        pat_str="|".join(map(re.escape, words)),
        mergeable_ranks={word.encode(): rank for rank, word in enumerate(words)},
        special_tokens={},
    )


@once
def rules_version() -> str:
    """Names the rules: what one of them finds may not be found by rules of another name."""
    rules = [(rule.kind, rule.words, rule.pattern.pattern) for rule in _rules()]
    return blake2b(repr(rules).encode(), digest_size=8).hexdigest()


def _is_given(value: str) -> bool:
    """Whether a value is none that stands for another."""
    return not _NO_SECRET.search(value)


def _is_user_and_password(value: str) -> bool:
    try:
        user, _, password = b64decode(value, validate=True).decode().partition(":")
    except ValueError:
        return False
    return bool(user and password) and f"{user}{password}".isprintable()


def _is_random(value: str) -> bool:
    """Whether a value looks made by a machine or chosen as a password, not a name in code."""
    if _NO_SECRET.search(value) or not re.search(r"\d", value) or not re.search(r"[A-Za-z]", value):
        return False
    shares = [value.count(sign) / len(value) for sign in set(value)]
    return -sum(share * log2(share) for share in shares) >= _LEAST_ENTROPY_BITS
