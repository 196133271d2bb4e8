"""What a name is worth: how likely the agent writes it again.

The weights are those of a logistic regression over what agents did write again in real sessions
(coding, customer service, capture-the-flag; benchmarks/recall.py), rounded: codes of letters and
digits, paths and dotted names are often needed again, ordinary words seldom; what the agent wrote
itself, what many messages share and what stood lately, more often than the rest.
"""

import math
import re

from context_compaction.summarizers.line_index import NameUses

# Of the messages; but a name in this few is never "everywhere".
_COMMON_SHARE = 0.3
_MANY_MESSAGES = 6
# A name's shape, and the logarithm of its weight. The first that matches counts.
_SHAPES = {
    "short_word": (r"[^\W\d_A-Z]{1,6}", -1.0),
    "word": (r"[^\W\d_A-Z]+", -0.25),
    "capitalised": (r"[A-Z][^\W\d_A-Z]+", -0.85),
    "date": (r"\d{4}-\d\d-\d\d.*", 0.0),
    "number": (r"[\d.,:]+", -0.3),
    "hyphened": (r"[a-z]+(?:-[a-z]+)+", -1.0),
    "path": (r".*/.*", 0.45),
    "code": (r"(?=.*\d).*[A-Za-z].*", 1.4),
    "constant": (r"[A-Z]+", 0.0),
    "underscored": (r".*_.*", -0.8),
    "dotted": (r".*\..*", 0.25),
}
_SHAPE = re.compile("|".join(f"(?P<{name}>{rule}\\Z)" for name, (rule, _) in _SHAPES.items()))
_SHAPE_WEIGHTS = {name: weight for name, (_, weight) in _SHAPES.items()}
_SHARED_WEIGHT = 0.3
# Age in messages counts where there are many.
_AGE_WEIGHT = 0.12
_LONG_MESSAGES = 400
_RECENT_WEIGHT = 1.0
_AGENT_WEIGHT = 0.7
_USER_ALONE_WEIGHT = -1.7


def name_weights(uses: NameUses, message_count: int) -> dict[str, float]:
    """The odds that each name is needed, up to a factor; 0 where it stands everywhere."""
    common = max(_MANY_MESSAGES, message_count * _COMMON_SHARE)
    shared = {times: _SHARED_WEIGHT * math.log(times) for times in set(uses.messages.values())}
    length = min(1.0, message_count / _LONG_MESSAGES)
    ages = [_AGE_WEIGHT * length * math.log2(message_count - last) for last in range(message_count)]
    recent = [_RECENT_WEIGHT * ((last + 1) / message_count) ** 3 for last in range(message_count)]
    found: dict[str, float] = {}
    for name, times in uses.messages.items():
        if times > common:
            found[name] = 0.0
            continue
        last = uses.last[name]
        weight = _shape_weight(name) + shared[times] - ages[last] + recent[last]
        if name in uses.by_agent:
            weight += _AGENT_WEIGHT
        elif name in uses.by_user:
            weight += _USER_ALONE_WEIGHT
        found[name] = math.exp(weight)
    return found


def _shape_weight(name: str) -> float:
    shape = _SHAPE.match(name)
    return _SHAPE_WEIGHTS[shape.lastgroup] if shape and shape.lastgroup else 0.0
