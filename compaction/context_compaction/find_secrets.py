"""Where a text contains a secret.

Three sets of rules look at a text: gitleaks' (the folder `secret_rules`), those of detect-secrets,
and forms that neither has. Every rule has words, one of which is in each of its finds: only rules
whose words a line contains look at it. Rules are loaded, and their patterns compiled, when a text
first has one of their words.

In that folder `curl -O https://raw.githubusercontent.com/gitleaks/gitleaks/master/config/gitleaks.toml`
gets the newest rules of gitleaks. `benchmarks/redaction.py` shows what they find.
"""

import re
import tomllib
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib import import_module
from importlib.resources import files
from itertools import groupby, pairwise
from math import log2
from typing import Any, TypeAlias

import regex

from context_compaction.messages.cache import RecentCache, run_once, text_key

_Words: TypeAlias = tuple[str, ...]
_Pattern: TypeAlias = "re.Pattern[str] | regex.Pattern[str]"
_Match: TypeAlias = "re.Match[str] | regex.Match[str]"
_Check: TypeAlias = Callable[[str, _Match], bool]

# These are not linear in their text, or need several lines; forms below find the same.
_GITLEAKS_LEFT_OUT = frozenset({
    "airtable-personnal-access-token", "curl-auth-header", "curl-auth-user", "jwt",
    "kubernetes-secret-yaml", "pkcs12-file", "private-key",
})  # fmt: skip
# Words that code often has; what these find has a digit, so that few lines need a look.
_GITLEAKS_HAS_DIGIT = frozenset({"generic-api-key", "vault-service-token"})
# What may stand before a name takes time and is no part of the secret.
_BEFORE_A_NAME = r"[\w.-]{0,50}?"
# A value ends here for gitleaks. In a conversation brackets, commas and tags follow one too.
_VALUE_END = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
_ANY_VALUE_END = r"(?![\w+/-])"
# Rules of others look at a longer line in pieces; each shares more with the next than tokens have.
_PIECE_CHARS, _SHARED_CHARS = 4_000, 600

# A module of detect-secrets, its class, and words in lower case: what gitleaks lacks, or asks a
# name for.
_DETECTORS: tuple[tuple[str, str, _Words], ...] = (
    ("artifactory", "ArtifactoryDetector", ("akc", "artifactory", "jfrog")),
    ("aws", "AWSKeyDetector", ("akia", "asia", "abia", "acca", "a3t", "aws")),
    ("azure_storage_key", "AzureStorageKeyDetector", ("accountkey=",)),
    ("cloudant", "CloudantDetector", ("cloudant",)),
    ("discord", "DiscordBotTokenDetector", ("discord",)),
    ("github_token", "GitHubTokenDetector", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    ("mailchimp", "MailchimpDetector", ("-us",)),
    ("npm", "NpmDetector", (":_authtoken=",)),
    ("slack", "SlackDetector", ("xox", "hooks.slack.com")),
    ("square_oauth", "SquareOAuthDetector", ("sq0csp-",)),
    ("telegram_token", "TelegramBotTokenDetector", ("telegram",)),
    ("twilio", "TwilioKeyDetector", ("twilio", "account_sid")),
)  # fmt: skip

# Beginnings of tokens that neither set has, or has in one length only.
_PREFIXES = (
    "A21AA", "AAAAAAAAAAAAAAAAAAAA", "AGE-SECRET-KEY-1", "APA91b", "APP_USR-", "ATATT3", "ATBB",
    "ATCTT3", "ATTA", "CCIPAT_", "CFPAT-", "EAAB", "EAAG", "GOCSPX-", "NRAK-", "RGAPI-", "bkua_",
    "dckr_oat_", "dckr_pat_", "dp.sa.", "dp.scim.", "dp.st.", "figd_", "fw_", "gsk_", "hf_", "hvb.",
    "hvs.", "lin_oauth_", "lsv2_pt_", "lsv2_sk_", "mlsn.", "nfp_", "ntn_", "nvapi-", "oy2",
    "pat-eu1-", "pat-na1-", "pcsk_", "phx_", "pypi-AgE", "r8_", "rzp_live_", "rzp_test_",
    "sb_secret_", "sbp_", "sk-admin-", "sk-ant-", "sk-lf-", "sk-or-v1-", "sk-proj-", "sk-svcacct-",
    "sk.eyJ", "sqa_", "sqp_", "squ_", "tfp_", "tskey-", "tvly-", "whsec_", "xai-", "xapp-", "xoxe",
    "xsmtpsib-", "ya29.",
)  # fmt: skip
# A token of a provider that no rule names: a short name, and letters and digits without order.
_UNKNOWN_TOKEN = re.compile(r"[_-]([A-Za-z0-9]{30,250})(?![\w+/=-])")
_BEFORE_TOKEN = re.compile(
    r"(?<![\w./+=-])(?!sha\d|toolu|msg|call|resp)[A-Za-z][A-Za-z0-9]{1,11}(?:[_-][A-Za-z0-9]{1,8}){0,3}\Z"
)

# A value that a name calls secret: after a colon or equals sign; in an element or an attribute
# (Maven, .NET); as an argument behind a name (PHP's define); in .netrc; and curl's user. In the
# arguments of a call, which are JSON in a string, there are backslashes before the quotes.
_NAMES = ("pass", "pwd", "pw", "psk", "secret", "token", "api")
_QUOTE = r"\\{0,3}['\"]"
_NAME = r"(?:passw(?:or)?d|passphrase|(?<![a-z])(?:pass|pw|psk)(?!\w)|pwd|secret|token|api[_-]?key)"
_VALUE = r"([^\s'\"`<>{}$\\]{8,200})"
_ARGUMENT = rf"(?:{_QUOTE})?([^\s'\"`<>{{}}()$\\]{{4,200}})"
# "Password" in other languages.
_SPOKEN = (
    "passwort", "kennwort", "contraseña", "mot de passe", "senha", "wachtwoord", "hasło", "пароль",
    "密码", "パスワード", "비밀번호",
)  # fmt: skip

# Kind, words in lower case and without white space, and pattern: what neither set has. The
# group is the secret, or the whole match. A pattern that ignores case does so in
# ASCII alone, as its words do. All are linear in any text.
_FORMS: tuple[tuple[str, _Words, str], ...] = (
    (
        "token", tuple(prefix.lower() for prefix in _PREFIXES),
        rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, _PREFIXES))})"
        r"[\w=-]{16,400}(?:\.[\w-]{10,400}){0,3}",
    ),
    ("token", ("sk-",), r"(?<![\w-])sk-[A-Za-z0-9]{32,64}(?![\w-])"),
    (
        "aws secret", ("akia", "asia"),
        r"A[KS]IA[A-Z0-9]{16}[^\n]{1,60}?(?<![\w/+])([\w/+]{40})(?![\w/+=])",
    ),
    ("braintree token", ("access_token$",), r"access_token\$\w{7,10}\$[\w$]{20,80}"),
    ("airtable token", ("pat",), r"(?<!\w)pat[A-Za-z0-9]{14}\.[a-f0-9]{64}(?!\w)"),
    ("dropbox token", ("sl.",), r"(?<!\w)sl\.[\w-]{100,2000}"),
    ("mailgun key", ("key-",), r"(?<!\w)key-[a-f0-9]{32}(?!\w)"),
    ("resend key", ("re_",), r"(?<!\w)re_[A-Za-z0-9]{6,10}_[A-Za-z0-9]{20,40}(?!\w)"),
    ("telegram token", (":aa",), r"(?<![\w:])\d{8,10}:AA[\w-]{33}(?![\w-])"),
    (
        "webhook", ("/webhooks/", "/webhookb2/"),
        r"discord(?:app)?\.com/api/webhooks/(\d{15,20}/[\w-]{50,90})"
        r"|\.office\.com/webhookb2/([\w@/-]{60,300})",
    ),
    ("sentry dsn", ("://",), r"https?://([0-9a-f]{32}(?::[0-9a-f]{32})?)@[\w.-]{4,80}/\d"),
    (
        "signed address", ("sig=", "signature="),
        r"(?ia)(?<!\w)(?:sig|[\w-]{0,20}signature)=([\w%+/=-]{32,300})",
    ),
    ("password hash", ("$",), r"\$(?:1|5|6|y|apr1|argon2id?|2[aby])\$[\w./$=,+-]{20,200}"),
    # Both sets take no signature with it, or no long token.
    ("json web token", ("eyj",), r"(?<![\w-])eyJ[\w-]{8,4000}\.[\w-]{4,8000}(?:\.[\w-]{0,2000})?"),
    ("bearer token", ("bearer",), r"(?ia)(?<!\w)bearer +([A-Za-z0-9_.~+/=-]{20,1000})"),
    (
        "authorization", ("authorization",),
        rf"(?ia)authorization(?:{_QUOTE})?\s{{0,2}}[:=]\s{{0,2}}(?:{_QUOTE})?(?:[a-z-]{{3,20}} )?"
        r"([\w.~+/=-]{16,2000})",
    ),
    # A user and a password in base64: in a header, and in Docker's file.
    ("basic auth", ("basic",), r"(?ia)(?<!\w)basic +([A-Za-z0-9+/]{8,400}={0,2})(?!\w)"),
    (
        "basic auth", ("auth",),
        r"(?ia)auth\\{0,3}\"\s{0,3}:\s{0,3}\\{0,3}\"([A-Za-z0-9+/]{8,400}={0,2})",
    ),
    (
        "docker auth", ("auths",),
        r"auths\\{0,3}\"[^\n]{0,300}?auth\\{0,3}\"\s{0,3}:\s{0,3}\\{0,3}\"([\w+/=-]{8,4000})",
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
        rf"\s{{0,3}}(?::=|=>|[:=])\s{{0,3}}(?:{_QUOTE})?([^\s'\"`,;<>{{}}()\[\]$\\]{{8,200}})",
    ),
    ("named secret", ("</",), rf"(?ia)<[\w.:-]{{0,20}}{_NAME}>{_VALUE}</"),
    (
        "named secret", ("key=", "name="),
        rf"(?ia)(?:key|name)={_QUOTE}[\w.:-]{{0,40}}{_NAME}[\w.-]{{0,20}}{_QUOTE}\s{{1,9}}"
        rf"value={_QUOTE}{_VALUE}",
    ),
    ("named secret", _NAMES, rf"(?ia){_NAME}{_QUOTE}\s{{0,3}},\s{{0,3}}{_QUOTE}{_VALUE}"),
    ("named secret", _NAMES, rf"(?ia){_NAME}\w{{0,20}}\({_QUOTE}{_VALUE}"),
    (
        "named secret", ("authtoken", "requirepass", "user"),
        rf"(?ia)(?:authtoken|requirepass|net user \S{{1,60}}) {_VALUE}",
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
        "named secret", ("identified", "password", "securestring"),
        rf"(?ia)(?:identified by|password|securestring(?: -string)?) {_QUOTE}{_VALUE}",
    ),
    (
        "spoken password", tuple(name.split()[-1] for name in _SPOKEN),
        rf"(?i)(?:{'|'.join(_SPOKEN)})(?: ?[:=：]| ist| es| est| é| is| to) ?{_ARGUMENT}",
    ),
    # Passwords that are arguments of programs.
    (
        "argument", ("mysql", "mariadb"),
        rf"(?:mysql|mariadb)[\w-]{{0,10}} [^\n|;&]{{0,200}}?(?<= )-p{_ARGUMENT}",
    ),
    ("argument", ("sshpass",), rf"sshpass [^\n|;&]{{0,40}}?-p ?{_ARGUMENT}"),
    ("argument", ("login",), rf"\w login [^\n|;&]{{0,200}}?(?<= )-p ?{_ARGUMENT}"),
    ("argument", ("redis-cli",), rf"redis-cli [^\n|;&]{{0,200}}?(?<= )-a ?{_ARGUMENT}"),
    ("argument", ("sqlcmd",), rf"sqlcmd [^\n|;&]{{0,200}}?(?<= )-P ?{_ARGUMENT}"),
    ("argument", ("ldap",), rf"ldap[a-z]{{3,9}} [^\n|;&]{{0,200}}?(?<= )-w ?{_ARGUMENT}"),
    (
        "argument", ("smb",),
        rf"smb[a-z]{{3,9}} [^\n|;&]{{0,200}}?(?<= )-U ?['\"]?[\w.\\-]{{1,60}}%{_ARGUMENT}",
    ),
    ("argument", ("pass:",), rf"-pass(?:in|out)? {{0,3}}(?:{_QUOTE})?pass:{_ARGUMENT}"),
    (
        "pgpass", (":543", ":6432:", ":*:"),
        r"^[^\s:/]{1,80}:(?:\d{4}|\*):[^\s:]{1,60}:[^\s:]{1,60}:(\S{6,100})",
    ),
)  # fmt: skip
_DIGIT = re.compile("[0-9]")
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


@dataclass(frozen=True)
class _Rule:
    """One kind of secret.

    Attributes:
        kind: What it finds.
        words: Each find contains one of them, in lower case.
        load: Makes its patterns.
        is_secret: Decides about what they find.
        is_linear: Whether the time of its patterns is linear in any text.
        has_digit: Whether every find has a digit: other lines need no look.
    """

    kind: str
    words: _Words
    load: Callable[[], Sequence[_Pattern]]
    is_secret: _Check
    is_linear: bool = False
    has_digit: bool = False

    @cached_property
    def patterns(self) -> Sequence[_Pattern]:
        return self.load()

    def find(self, line: str, offset: int) -> Iterator[Secret]:
        """The secrets in a line that begins at `offset`."""
        if self.has_digit and not _DIGIT.search(line):
            return
        step = len(line) + 1 if self.is_linear else _PIECE_CHARS - _SHARED_CHARS
        for start in range(0, max(1, len(line) - _SHARED_CHARS), step):
            piece = line if self.is_linear else line[start : start + _PIECE_CHARS]
            for pattern in self.patterns:
                for found in pattern.finditer(piece):
                    group = _secret_group(found)
                    if self.is_secret(found[group], found):
                        at = offset + start
                        yield Secret(self.kind, at + found.start(group), at + found.end(group))


def _secret_group(found: _Match) -> int:
    """The first group that has the length of a secret, or 0: others, and named ones, are parts."""
    groups = () if found.lastgroup else enumerate(found.groups(""), 1)
    return next((group for group, text in groups if len(text) >= 4), 0)


def find_secrets(text: str) -> tuple[Secret, ...]:
    """The secrets in `text`, in order; those that overlap are one."""
    # Each gate looks at the same texts.
    return _found.get_or_compute(text_key(text), lambda: _find_secrets(text))


_found: RecentCache[tuple[Secret, ...]] = RecentCache()


def _find_secrets(text: str) -> tuple[Secret, ...]:
    found = (*_private_keys(text), *_by_rules(text), *_unknown_tokens(text))
    apart: list[Secret] = []
    for secret in sorted(found, key=lambda s: (s.start, -s.stop)):
        if not apart or secret.start >= apart[-1].stop:
            apart.append(secret)
        elif secret.stop > apart[-1].stop:
            apart[-1] = Secret(apart[-1].kind, apart[-1].start, secret.stop)
    return tuple(apart)


def _private_keys(text: str) -> Iterator[Secret]:
    for found in _PRIVATE_KEY.finditer(text) if "PRIVATE KEY" in text else ():
        yield Secret("private key", found.start(), found.end())


def _unknown_tokens(text: str) -> Iterator[Secret]:
    for found in _UNKNOWN_TOKEN.finditer(text):
        before = text[max(0, found.start() - 48) : found.start()]
        if _is_mixed(found[1]) and _BEFORE_TOKEN.search(before):
            yield Secret("token", found.start(1), found.end(1))


def _by_rules(text: str) -> Iterator[Secret]:
    lowered = text.lower()
    # No word has white space, and most pieces of a text occur in it often.
    words = _words_in(" ".join(set(lowered.split())))
    rules = [rule for rule in _rules() if not words.isdisjoint(rule.words)] if words else []
    offset = 0
    for line, small in zip(text.split("\n"), lowered.split("\n"), strict=True) if rules else ():
        found = {word for word in words if word in small}
        for rule in rules if found else ():
            if not found.isdisjoint(rule.words):
                yield from rule.find(line, offset)
        offset += len(line) + 1


@run_once
def _rules() -> tuple[_Rule, ...]:
    """All rules. Of two that find the same, the first names it."""
    return (*_detect_secrets_rules(), *_gitleaks_rules(), *_own_rules())


def _words_in(lowered: str) -> set[str]:
    """The words of all rules that a text in lower case contains, found in one pass."""
    pattern, longer = _words()
    found = set(pattern.findall(lowered))
    return found | {word for short in found for word in longer[short] if word in lowered}


@run_once
def _words() -> tuple[re.Pattern[str], Mapping[str, Sequence[str]]]:
    """A pattern for the words that begin with no other word, and the words that begin with each."""
    words = sorted({word for rule in _rules() for word in rule.words})
    short = [word for word in words if not word.startswith(tuple(set(words) - {word}))]
    longer = {head: [word for word in words if word.startswith(head)] for head in short}
    return re.compile(f"(?=({_alternatives(short)}))"), longer


def _alternatives(words: Sequence[str]) -> str:
    """A pattern for sorted words: those that begin alike have their beginning in common."""
    groups = groupby(words, key=lambda word: word[:1])
    parts = [
        re.escape(head) + _alternatives([word[1:] for word in group])
        for head, group in groups
        if head
    ]
    return f"(?:{'|'.join(parts)})" if len(parts) > 1 else "".join(parts)


def _gitleaks() -> bytes:
    return (files("context_compaction") / "secret_rules" / "gitleaks.toml").read_bytes()


def _own_rules() -> Iterator[_Rule]:
    for kind, words, pattern in _FORMS:
        check = _CHECKS.get(kind, _is_any)

        def load(pattern: str = pattern) -> Sequence[_Pattern]:
            return (re.compile(pattern),)

        has_digit = check in {_is_random, _is_token}
        yield _Rule(kind, words, load, check, is_linear=True, has_digit=has_digit)


def _detect_secrets_rules() -> Iterator[_Rule]:
    for module, name, words in _DETECTORS:
        load = partial(_detect_secrets_patterns, module, name)
        yield _Rule(module.replace("_", " "), words, load, _is_any)


def _detect_secrets_patterns(module: str, name: str) -> Sequence[_Pattern]:
    detector: Any = getattr(import_module(f"detect_secrets.plugins.{module}"), name)
    return tuple(detector.denylist)


def _gitleaks_rules() -> Iterator[_Rule]:
    given: Mapping[str, Any] = tomllib.loads(_gitleaks().decode())
    for rule in given["rules"]:
        if rule["id"] not in _GITLEAKS_LEFT_OUT:
            allowed = (given["allowlist"], *rule.get("allowlists", ()))
            yield _Rule(
                rule["id"].replace("-", " "),
                tuple(word.split()[0] for word in rule["keywords"]),
                partial(_gitleaks_pattern, rule["regex"]),
                _gitleaks_check(rule.get("entropy", 0.0), allowed),
                has_digit=rule["id"] in _GITLEAKS_HAS_DIGIT,
            )


def _gitleaks_pattern(go: str) -> tuple[_Pattern]:
    return (_go_pattern(go.replace(_BEFORE_A_NAME, "").replace(_VALUE_END, _ANY_VALUE_END)),)


def _gitleaks_check(entropy: float, allowed: Sequence[Mapping[str, Any]]) -> _Check:
    """Whether a find has so many bits a character, and no list of the rule allows it."""
    # Texts have no path: a list that asks for one too allows nothing.
    lists = [one for one in allowed if one.get("condition") != "AND"]

    def is_secret(secret: str, found: _Match) -> bool:
        if _entropy(secret) <= entropy or not _is_given(secret):
            return False
        small = secret.lower()
        targets = {"match": found[0], "line": found.string}
        return not any(
            any(word in small for word in one.get("stopwords", ()))
            or any(
                _go_pattern(pattern).search(targets.get(one.get("regexTarget", ""), secret))
                for pattern in one.get("regexes", ())
            )
            for one in lists
        )

    return is_secret


@cache
def _go_pattern(go: str) -> _Pattern:
    """A pattern of Go. `regex` reads each as it is; `re`, which is faster, most of them."""
    try:
        return re.compile(go, re.ASCII)
    except re.error:
        return regex.compile(go, regex.V1 | regex.ASCII)


def _is_any(_secret: str, _found: _Match) -> bool:
    return True


def _is_given(value: str, _found: object = None) -> bool:
    """Whether a value is none that stands for another."""
    return not _STANDS_FOR_ANOTHER.search(value)


def _is_user_and_password(value: str, _found: object) -> bool:
    try:
        user, _, password = b64decode(value, validate=True).decode().partition(":")
    except ValueError:
        return False
    return bool(user and password) and f"{user}{password}".isprintable()


def _is_token(value: str, _found: object) -> bool:
    """Whether letters and digits are mixed in a value."""
    return bool(re.search(r"(?=[A-Za-z]{0,9}\d)[A-Za-z0-9]{10}", value)) and _is_random(value)


def _is_mixed(value: str) -> bool:
    """Whether a value has small and capital letters and digits without order."""
    digits = sum(map(str.isdigit, value))
    return (
        2 <= digits < len(value) * 0.7
        and value.lower() != value != value.upper()
        and _entropy(value) > 4
    )


def _is_random(value: str, _found: object = None) -> bool:
    """Whether a value looks made by a machine or chosen as a password, not a name in code."""
    has_digit, has_letter = any("0" <= c <= "9" for c in value), any(map(str.isalpha, value))
    return has_digit and has_letter and _is_given(value) and _entropy(value) >= 3.0


def _is_password(value: str, _found: object) -> bool:
    """Whether a value has a digit or sign, or changes between small and capital letters."""
    changes = sum(a.isupper() != b.isupper() for a, b in pairwise(value))
    return _is_given(value) and ((not value.isalpha() and len(value) > 5) or changes > 2)


def _entropy(value: str) -> float:
    """Bits of a character; words of a language have less than 3, keys 4 and more."""
    shares = [value.count(sign) / len(value) for sign in set(value)]
    return -sum(share * log2(share) for share in shares)


_CHECKS: Mapping[str, _Check] = {
    "token": _is_token,
    "named secret": _is_random,
    "authorization": _is_random,
    "aws secret": _is_random,
    "signed address": _is_random,
    "cookie": _is_random,
    "pgpass": _is_random,
    "spoken password": _is_password,
    "argument": _is_given,
    "url password": _is_given,
    "basic auth": _is_user_and_password,
}
