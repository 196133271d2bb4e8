"""At a small target, rules of the user take precedence over unread results."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.small import answered, assistant, call, compacted, lines, result, user

SUBJECTS = (
    "invoices", "refunds", "logs", "commits", "releases", "tickets", "reports", "backups",
    "migrations", "emails", "tests", "icons", "prices", "labels", "dashboards", "exports",
    "contracts", "orders", "budgets", "images",
)  # fmt: skip
RULES = [f"All {subject} have to be checked twice." for subject in SUBJECTS]


def session(request_lines: int, answer_lines: int) -> list[Json]:
    """Return work with rules, then a long request and a long unread tool result."""
    payload: list[Json] = []
    for number, rule in enumerate(RULES):
        payload += [user(f"Go on with part {number}.\n\n{rule}")]
        payload += [*answered(f"w{number}", "Bash", lines(f"work_{number}", 60))]
        payload += [assistant(f"Part {number} is done.")]
    tips = "\n".join(f"{n}. When part {n} of it fails, look at page {n}." for n in range(1, 400))
    request = "\n".join(("Find out why shard 7 is lost.", "", *tips.splitlines()[:request_lines]))
    payload.append(user(request))
    for number in range(4):
        payload += answered(f"l{number}", "Bash", lines(f"look_{number}", 60))
    plan = " ".join(f"Then comes table {n}." for n in range(20))
    return [
        *payload,
        assistant(plan, call("last", "Bash", command="cat shard.log")),
        user([result("last", lines("unread", answer_lines))]),
    ]


@settings(max_examples=8)
@given(st.integers(1, 120), st.integers(1, 200), st.integers(1_500, 4_000))
@example(request_lines=60, answer_lines=150, target=1_500)
@example(request_lines=120, answer_lines=200, target=1_500)
@example(request_lines=30, answer_lines=4, target=1_500)
async def test_rules_stay_next_to_a_long_request_and_a_long_result(
    request_lines: int, answer_lines: int, target: int
) -> None:
    payload = session(request_lines, answer_lines)
    compaction = await compacted(payload, model="gpt-4o", target_tokens=target)
    assert compaction.fits
    text = str(compaction.messages)
    assert [rule for rule in RULES if rule not in text] == []
    assert "Find out why shard 7 is lost." in text
    assert "unread line 0" in text
