"""Find the secrets in a text.

The rules are those of gitleaks (folder `secret_rules`), detectors of detect-secrets, and a table of
forms that both lack.
Every match of a rule contains one of the rule's words, so a line is searched only by rules whose
words it contains. A pattern is compiled when a text first contains one of its words.

In that folder `curl -O https://raw.githubusercontent.com/gitleaks/gitleaks/master/config/gitleaks.toml`
gets the newest rules of gitleaks. `benchmarks/redaction.py` measures what all rules find.
"""

import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib import import_module
from importlib.resources import files
from itertools import chain, pairwise
from math import log2
from typing import Any, TypeAlias

import regex

from context_compaction.messages.cache import RecentCache, run_once, text_key

_Words: TypeAlias = tuple[str, ...]
_Pattern: TypeAlias = "re.Pattern[str] | regex.Pattern[str]"
_Match: TypeAlias = "re.Match[str] | regex.Match[str]"
_Check: TypeAlias = Callable[[str, _Match], bool]

# These rules take more than linear time or need several lines. Forms below find the same secrets.
_GITLEAKS_OMITTED = frozenset({
    "airtable-personnal-access-token", "curl-auth-header", "curl-auth-user", "jwt",
    "kubernetes-secret-yaml", "pkcs12-file", "private-key",
})  # fmt: skip
# The words of these rules are common in code. Their secrets contain a digit, so that only lines
# with a digit are searched.
_GITLEAKS_NEEDS_DIGIT = frozenset({"generic-api-key", "vault-service-token"})
# Removed from patterns: what precedes a name takes time to match and is not part of the secret.
_BEFORE_A_NAME = r"[\w.-]{0,50}?"
# The end of a value in gitleaks. In a conversation, brackets, commas and tags can follow, too.
_VALUE_END = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
_ANY_VALUE_END = r"(?![\w+/-])"
# Rules of gitleaks search long lines in pieces, because not all are linear. Pieces overlap by more
# than the length of a token.
_PIECE_CHARS, _OVERLAP_CHARS = 4_000, 600

# Detectors of detect-secrets: module, class, and words in lower case. Its other detectors find less
# than the rules of gitleaks, or guess from randomness alone.
_DETECTORS: tuple[tuple[str, str, _Words], ...] = (
    ("artifactory", "ArtifactoryDetector", ("akc", "artifactory", "jfrog")),
    ("aws", "AWSKeyDetector", ("akia", "asia", "abia", "acca", "a3t", "aws")),
    ("azure_storage_key", "AzureStorageKeyDetector", ("accountkey=",)),
    ("cloudant", "CloudantDetector", ("cloudant",)),
    ("discord", "DiscordBotTokenDetector", ("discord",)),
    ("mailchimp", "MailchimpDetector", ("-us",)),
    ("npm", "NpmDetector", (":_authtoken=",)),
    ("slack", "SlackDetector", ("xox", "hooks.slack.com")),
    ("square_oauth", "SquareOAuthDetector", ("sq0csp-",)),
    ("telegram_token", "TelegramBotTokenDetector", ("telegram",)),
    ("twilio", "TwilioKeyDetector", ("twilio", "account_sid")),
)  # fmt: skip

# Beginnings of tokens that gitleaks lacks, or knows in one length only.
_PREFIXES = (
    "A21AA", "AAAAAAAAAAAAAAAAAAAA", "AGE-SECRET-KEY-1", "APA91b", "APP_USR-", "ATATT3", "ATBB",
    "ATCTT3", "ATTA", "CCIPAT_", "CFPAT-", "EAAB", "EAAG", "GOCSPX-", "NRAK-", "RGAPI-", "bkua_",
    "dckr_oat_", "dckr_pat_", "dp.sa.", "dp.scim.", "dp.st.", "figd_", "fw_", "gsk_", "hf_", "hvb.",
    "hvs.", "lin_oauth_", "lsv2_pt_", "lsv2_sk_", "mlsn.", "nfp_", "ntn_", "nvapi-", "oy2",
    "pat-eu1-", "pat-na1-", "pcsk_", "phx_", "pypi-AgE", "r8_", "rzp_live_", "rzp_test_",
    "sb_secret_", "sbp_", "sk-admin-", "sk-ant-", "sk-lf-", "sk-or-v1-", "sk-proj-", "sk-svcacct-",
    "sk.eyJ", "sq0csp-", "sqa_", "sqp_", "squ_", "tfp_", "tskey-", "tvly-", "whsec_", "xai-",
    "xapp-", "xoxe", "xsmtpsib-", "ya29.",
)  # fmt: skip
# A token of an unknown provider: a short name, then letters and digits in random order.
_UNKNOWN_TOKEN = re.compile(r"[_-]([A-Za-z0-9]{30,250})(?![\w+/=-])")
_BEFORE_TOKEN = re.compile(
    r"(?<![\w./+=-])(?!sha\d|toolu|msg|call|resp)[A-Za-z][A-Za-z0-9]{1,11}(?:[_-][A-Za-z0-9]{1,8}){0,3}\Z"
)

# A value whose name says that it is secret: after a sign, in .netrc, as curl's user. The arguments
# of a tool call are JSON in a string, so backslashes can precede the quotes.
_NAMES = ("pass", "pwd", "pw", "psk", "secret", "token", "api")
_QUOTE = r"\\{0,3}['\"]"
_NAME = r"(?:passw(?:or)?d|passphrase|(?<![a-z])(?:pass|pw|psk)(?!\w)|pwd|secret|token|api[_-]?key)"
_VALUE = r"([^\s'\"`<>{}$\\]{8,200})"
_ARGUMENT = rf"(?:{_QUOTE})?([^\s'\"`<>{{}}()$\\]{{4,200}})"
# The word "password" in other languages.
_PASSWORD_WORDS = (
    "passwort", "kennwort", "contraseña", "mot de passe", "senha", "wachtwoord", "hasło", "пароль",
    "密码", "パスワード", "비밀번호",
)  # fmt: skip

# Forms that gitleaks lacks: kind, words in lower case without white space, and pattern. The first
# group is the secret; without a group, the whole match is. A pattern that ignores case does so for
# ASCII only, as its words do. All patterns take linear time.
_FORMS: tuple[tuple[str, _Words, str], ...] = (
    (
        "token", tuple(prefix.lower() for prefix in _PREFIXES),
        rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, _PREFIXES))})"
        r"[\w=-]{16,400}(?:\.[\w-]{10,400}){0,3}",
    ),
    ("airtable token", ("pat",), r"(?<!\w)pat[A-Za-z0-9]{14}\.[a-f0-9]{64}(?!\w)"),
    ("mailgun key", ("key-",), r"(?<!\w)key-[a-f0-9]{32}(?!\w)"),
    ("resend key", ("re_",), r"(?<!\w)re_[A-Za-z0-9]{6,10}_[A-Za-z0-9]{20,40}(?!\w)"),
    ("telegram token", (":aa",), r"(?<![\w:])\d{8,10}:AA[\w-]{33}(?![\w-])"),
    (
        "webhook", ("/webhooks/", "/webhookb2/", "hooks.slack.com"),
        r"hooks\.slack\.com/services/([\w/]{30,80})"
        r"|discord(?:app)?\.com/api/webhooks/(\d{15,20}/[\w-]{50,90})"
        r"|\.office\.com/webhookb2/([\w@/-]{60,300})",
    ),
    ("sentry dsn", ("://",), r"https?://([0-9a-f]{32}(?::[0-9a-f]{32})?)@[\w.-]{4,80}/\d"),
    (
        "signed address", ("sig=", "signature="),
        r"(?ia)(?<!\w)(?:sig|[\w-]{0,20}signature)=([\w%+/=-]{32,300})",
    ),
    ("password hash", ("$",), r"\$(?:1|5|6|y|apr1|argon2id?|2[aby])\$[\w./$=,+-]{20,200}"),
    # gitleaks omits the signature, or long tokens.
    ("json web token", ("eyj",), r"(?<![\w-])eyJ[\w-]{8,4000}\.[\w-]{4,8000}(?:\.[\w-]{0,2000})?"),
    ("bearer token", ("bearer",), r"(?ia)(?<!\w)bearer +([A-Za-z0-9_.~+/=-]{20,1000})"),
    (
        "authorization", ("authorization",),
        rf"(?ia)authorization(?:{_QUOTE})?\s{{0,2}}[:=]\s{{0,2}}(?:{_QUOTE})?(?:[a-z-]{{3,20}} )?"
        r"([\w.~+/=-]{16,2000})",
    ),
    (
        "cookie", ("cookie", "sessid=", "sessionid=", "session_id=", "connect.sid="),
        rf"(?ia)(?:cookie(?:{_QUOTE})?\s{{0,2}}[:=]\s{{0,2}}(?:{_QUOTE})?[\w.-]{{1,60}}"
        r"|(?<!\w)\w{0,20}sess(?:ion)?_?id|connect\.sid)=([^\s;,'\"`<>{}()\[\]$\\]{16,4000})",
    ),
    (
        "url password", ("://",),
        r"://[^\s/?#:@'\"<>]{0,100}:([^\s/?#@'\"`<>{}$%][^\s/@'\"`<>{}]{2,200})@",
    ),
    (
        "named secret",
        (*_NAMES, "access", "private", "auth", "credential"),
        rf"(?ia)(?:{_NAME}|(?:access|private|auth)[_-]?key|credentials?)\w{{0,20}}(?:{_QUOTE})?"
        rf"\s{{0,3}}(?::=|=>|[:=>]|value=|,(?=\s?{_QUOTE}))\s{{0,3}}(?:{_QUOTE})?"
        rf"([^\s'\"`,;<>{{}}()\[\]$\\]{{8,200}})",
    ),
    ("named secret", ("login",), rf"(?ia)login \S{{1,80}}\s{{1,9}}password\s{{1,9}}{_VALUE}"),
    (
        "named secret", ("curl",),
        rf"(?ia)curl [^\n]{{0,300}}?(?:-u|--user)[ =]{{0,3}}(?:{_QUOTE})?[\w.@+-]{{1,80}}:{_VALUE}",
    ),
    (
        "named secret", ("--",),
        rf"(?ia)--[\w-]{{0,20}}(?:passw(?:or)?d|pass|secret|token|key) (?:{_QUOTE})?{_VALUE}",
    ),
    ("named secret", ("password", "passphrase"), rf"(?ia)pass(?:word|phrase) (?:is|was) {_VALUE}"),
    (
        "password in prose", tuple(name.split()[-1] for name in _PASSWORD_WORDS),
        rf"(?i)(?:{'|'.join(_PASSWORD_WORDS)})(?: ?[:=：]| ist| es| est| é| is| to) ?{_ARGUMENT}",
    ),
    (
        "pgpass", (":543", ":6432:", ":*:"),
        r"^[^\s:/]{1,80}:(?:\d{4}|\*):[^\s:]{1,60}:[^\s:]{1,60}:(\S{6,100})",
    ),
    # Passwords as arguments of programs.
    (
        "argument", ("mysql", "mariadb", "sshpass", "login", "redis-cli"),
        rf"(?:mysql|mariadb|sshpass|\w login|redis-cli)[\w-]{{0,10}} [^\n|;&]{{0,200}}?"
        rf"(?<= )-[pa] ?{_ARGUMENT}",
    ),
)  # fmt: skip
_DIGIT = re.compile("[0-9]")
# A key of 8,192 bits has 6,400 characters. Without its end only the opening line matches.
_KEY_MARK = r"[A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_PRIVATE_KEY = re.compile(
    rf"-----BEGIN {_KEY_MARK}(?:(?:(?!-----).){{0,12000}}-----END {_KEY_MARK})?", re.DOTALL
)
_PLACEHOLDER = re.compile(
    r"(?i)example|placeholder|change.?me|your[_-]|dummy|redacted|xxxx|\*{3}|\.\.\."
    r"|^(?:true|false|null|none)|^https?:"
    r"|^(?:self|this|os|process|env|config|settings|request|response|ctx|args|options)[._]"
)


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret in a text.

    Attributes:
        kind: Kind of secret, for example "github pat".
        start: Index of its first character.
        stop: Index after its last character.
    """

    kind: str
    start: int
    stop: int


@dataclass(frozen=True)
class _Rule:
    """A rule for one kind of secret.

    Attributes:
        kind: Kind of its secrets.
        words: Words in lower case; each match contains one of them.
        load: Returns its regular expressions. Called when a text first contains one of the words.
        is_secret: Decides whether a match is a secret.
        is_from_gitleaks: Whether gitleaks wrote the rule, so its time may not be linear.
        needs_digit: Whether each match contains a digit.
    """

    kind: str
    words: _Words
    load: Callable[[], Sequence[_Pattern]]
    is_secret: _Check
    is_from_gitleaks: bool
    needs_digit: bool

    @cached_property
    def patterns(self) -> Sequence[_Pattern]:
        return self.load()

    def find(self, line: str, offset: int) -> Iterator[Secret]:
        """Yield the secrets in a line that starts at index `offset` of the text."""
        if self.needs_digit and not _DIGIT.search(line):
            return
        if not self.is_from_gitleaks:
            yield from self._find(line, offset)
            return
        step = _PIECE_CHARS - _OVERLAP_CHARS
        for start in range(0, max(1, len(line) - _OVERLAP_CHARS), step):
            yield from self._find(line[start : start + _PIECE_CHARS], offset + start)

    def _find(self, piece: str, offset: int) -> Iterator[Secret]:
        for pattern in self.patterns:
            for match in pattern.finditer(piece):
                group = _secret_group(match)
                if self.is_secret(match[group], match):
                    yield Secret(self.kind, offset + match.start(group), offset + match.end(group))


def _secret_group(match: _Match) -> int:
    """Return the first unnamed group with the length of a secret; otherwise 0."""
    groups = () if match.lastgroup else enumerate(match.groups(""), 1)
    return next((group for group, text in groups if len(text) >= 4), 0)


def find_secrets(text: str) -> tuple[Secret, ...]:
    """Return the secrets in `text`, in order. Overlapping secrets are merged into one."""
    # Every redaction gate searches the same texts.
    return _secrets.get_or_compute(text_key(text), lambda: _find_secrets(text))


_secrets: RecentCache[tuple[Secret, ...]] = RecentCache()


def _find_secrets(text: str) -> tuple[Secret, ...]:
    matches = (*_private_keys(text), *_by_rules(text), *_unknown_tokens(text))
    merged: list[Secret] = []
    for secret in sorted(matches, key=lambda s: (s.start, -s.stop)):
        if not merged or secret.start >= merged[-1].stop:
            merged.append(secret)
        elif secret.stop > merged[-1].stop:
            merged[-1] = Secret(merged[-1].kind, merged[-1].start, secret.stop)
    return tuple(merged)


def _private_keys(text: str) -> Iterator[Secret]:
    for match in _PRIVATE_KEY.finditer(text) if "PRIVATE KEY" in text else ():
        yield Secret("private key", match.start(), match.end())


def _unknown_tokens(text: str) -> Iterator[Secret]:
    for match in _UNKNOWN_TOKEN.finditer(text):
        before = text[max(0, match.start() - 48) : match.start()]
        if _is_mixed(match[1]) and _BEFORE_TOKEN.search(before):
            yield Secret("token", match.start(1), match.end(1))


def _by_rules(text: str) -> Iterator[Secret]:
    lowered = text.lower()
    # No word contains white space, and most parts of a text occur in it often.
    words = _words_in(" ".join(set(lowered.split())))
    rules = [rule for rule in _rules() if not words.isdisjoint(rule.words)] if words else []
    offset = 0
    for line, small in zip(text.split("\n"), lowered.split("\n"), strict=True) if rules else ():
        line_words = {word for word in words if word in small}
        for rule in rules if line_words else ():
            if not line_words.isdisjoint(rule.words):
                yield from rule.find(line, offset)
        offset += len(line) + 1


def _words_in(lowered: str) -> set[str]:
    """Return the words of all rules that a text in lower case contains."""
    words = _words_by_start()
    starts = set(zip(lowered, lowered[1:], lowered[2:], strict=False)) & words.keys()
    candidates = chain(words[()], *(words[start] for start in starts))
    return {word for word in candidates if word in lowered}


@run_once
def _words_by_start() -> Mapping[_Words, Sequence[str]]:
    """Return the words of all rules by their first three characters; shorter ones under ()."""
    words: defaultdict[_Words, list[str]] = defaultdict(list)
    for word in {word for rule in _rules() for word in rule.words}:
        words[tuple(word[:3]) if len(word) > 2 else ()].append(word)
    return words


@run_once
def _rules() -> tuple[_Rule, ...]:
    """Return all rules. If two rules find the same secret, the first one names its kind."""
    return (*_gitleaks_rules(), *_detect_secrets_rules(), *_own_rules())


def _own_rules() -> Iterator[_Rule]:
    for kind, words, source in _FORMS:
        check = _CHECKS.get(kind, _is_any)
        needs_digit = check in {_is_random, _is_token}
        load = partial(_own_patterns, source)
        yield _Rule(kind, words, load, check, is_from_gitleaks=False, needs_digit=needs_digit)


def _own_patterns(source: str) -> Sequence[_Pattern]:
    return (re.compile(source),)


def _detect_secrets_rules() -> Iterator[_Rule]:
    for module, name, words in _DETECTORS:
        load = partial(_detector_patterns, module, name)
        kind = module.replace("_", " ")
        yield _Rule(kind, words, load, _is_any, is_from_gitleaks=False, needs_digit=False)


def _detector_patterns(module: str, name: str) -> Sequence[_Pattern]:
    detector: Any = getattr(import_module(f"detect_secrets.plugins.{module}"), name)
    return tuple(detector.denylist)


def _gitleaks_rules() -> Iterator[_Rule]:
    path = files("context_compaction") / "secret_rules" / "gitleaks.toml"
    config: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    for rule in config["rules"]:
        if rule["id"] not in _GITLEAKS_OMITTED:
            source: str = rule["regex"].replace(_BEFORE_A_NAME, "")
            allowlists = (config["allowlist"], *rule.get("allowlists", ()))
            yield _Rule(
                rule["id"].replace("-", " "),
                tuple(word.split()[0] for word in rule["keywords"]),
                partial(_gitleaks_patterns, source.replace(_VALUE_END, _ANY_VALUE_END)),
                _gitleaks_check(rule.get("entropy", 0.0), allowlists),
                is_from_gitleaks=True,
                needs_digit=rule["id"] in _GITLEAKS_NEEDS_DIGIT,
            )


def _gitleaks_patterns(source: str) -> Sequence[_Pattern]:
    return (_go_pattern(source),)


def _gitleaks_check(min_entropy: float, allowlists: Sequence[Mapping[str, Any]]) -> _Check:
    """Return a check for enough bits per character and for the allowlists of a rule."""
    # A list with the condition AND also requires a path, which texts do not have.
    lists = [allowed for allowed in allowlists if allowed.get("condition") != "AND"]

    def is_secret(secret: str, match: _Match) -> bool:
        if _entropy(secret) <= min_entropy or not _is_real(secret):
            return False
        small = secret.lower()
        targets = {"match": match[0], "line": match.string}
        return not any(
            any(word in small for word in allowed.get("stopwords", ()))
            or any(
                _go_pattern(source).search(targets.get(allowed.get("regexTarget", ""), secret))
                for source in allowed.get("regexes", ())
            )
            for allowed in lists
        )

    return is_secret


@cache
def _go_pattern(source: str) -> _Pattern:
    """Compile a pattern of Go. `re` is faster, but only `regex` reads all of them."""
    try:
        return re.compile(source, re.ASCII)
    except re.error:
        return regex.compile(source, regex.V1 | regex.ASCII)


def _is_any(_value: str, _match: _Match) -> bool:
    return True


def _is_real(value: str, _match: object = None) -> bool:
    """Whether a value is not a placeholder, a variable or an address."""
    return not _PLACEHOLDER.search(value)


def _is_token(value: str, _match: object) -> bool:
    """Whether a value mixes letters and digits."""
    return bool(re.search(r"(?=[A-Za-z]{0,9}\d)[A-Za-z0-9]{10}", value)) and _is_random(value)


def _is_mixed(value: str) -> bool:
    """Whether a value mixes lower-case and upper-case letters and digits in random order."""
    digits = sum(map(str.isdigit, value))
    return (
        2 <= digits < len(value) * 0.7
        and value.lower() != value != value.upper()
        and _entropy(value) > 4
    )


def _is_random(value: str, _match: object = None) -> bool:
    """Whether a value looks generated or chosen as a password, unlike a name in code."""
    has_digit, has_letter = any("0" <= c <= "9" for c in value), any(map(str.isalpha, value))
    return has_digit and has_letter and _is_real(value) and _entropy(value) >= 3.0


def _is_password(value: str, _match: object) -> bool:
    """Whether a value has a digit or sign, or changes between lower and upper case."""
    changes = sum(a.isupper() != b.isupper() for a, b in pairwise(value))
    return _is_real(value) and ((not value.isalpha() and len(value) > 5) or changes > 2)


def _entropy(value: str) -> float:
    """Return the bits per character. Words have less than 3, keys have 4 or more."""
    shares = [value.count(character) / len(value) for character in set(value)]
    return -sum(share * log2(share) for share in shares)


_CHECKS: Mapping[str, _Check] = {
    "token": _is_token,
    "named secret": _is_random,
    "authorization": _is_random,
    "signed address": _is_random,
    "cookie": _is_random,
    "pgpass": _is_random,
    "password in prose": _is_password,
    "argument": _is_real,
    "url password": _is_real,
}
