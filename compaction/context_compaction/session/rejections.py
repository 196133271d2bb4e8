"""What a provider has refused as too long: the state behind the mode "reactive". Pure.

Every reactive call reports that its list was refused, and its receipt keeps that, with the list
that it returned instead. So no process returns what was refused before, and each refusal of the
same request is met one effort level harder and with half of what was refused last: the number of
levels bounds the retries, and the last answer warns that another is of no use.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from context_compaction.messages.history_hash import history_hash
from context_compaction.messages.model import JsonObject
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from context_compaction.session.state import Rejection, SessionState


@dataclass(frozen=True, slots=True)
class PromptTooLongRejections:
    """The refusals of one request.

    Attributes:
        key: Names the list that was refused now; "" where none was.
        rejected: Names of all lists of the session that were refused, this one included.
        versions: How many lists were refused for this request: this one, and those that it was
            made from or that were made from it.
        smallest_tokens: The smallest of those, by the estimate at the time; None where this is the
            only one.
        max_retries: So many times a refused request is compacted; 0 is as long as it gets smaller.
    """

    key: str = ""
    rejected: frozenset[str] = frozenset()
    versions: int = 1
    smallest_tokens: int | None = None
    max_retries: int = 0

    @property
    def is_spent(self) -> bool:
        """Whether it has been compacted as often as it may be, and refused all the same."""
        return 0 < self.max_retries < self.versions

    @property
    def harder_levels(self) -> int:
        """How many effort levels have been tried in vain."""
        return self.versions - 1

    def harder(self, request: CompactRequest) -> CompactRequest:
        """`request` with a target that no version of it met that was refused."""
        if self.smallest_tokens is None:
            return request
        most = self.smallest_tokens // 2
        return replace(request, target_tokens=max(1, min(request.target_tokens or most, most)))


def rejections_of(
    payload: Sequence[JsonObject], states: Sequence[SessionState], max_retries: int = 0
) -> PromptTooLongRejections:
    """The refusals of `payload`, which a provider has just refused.

    Args:
        payload: The list.
        states: The states of all calls of the session, in any order.
        max_retries: See `PromptTooLongRejections`.
    """
    told = [state.rejection for state in states if state.rejection is not None]
    key = history_hash(payload)
    rejected = frozenset({key, *(item.request for item in told)})
    # Lists of which one was made from the other, both of them refused.
    links = [item for item in told if item.result in rejected]
    versions = {key}
    grows = True
    while grows:
        found = {
            end
            for item in links
            if item.request in versions or item.result in versions
            for end in (item.request, item.result)
            if end is not None
        }
        grows = not found <= versions
        versions |= found
    sizes = [item.result_tokens for item in links if item.result in versions]
    return PromptTooLongRejections(
        key, rejected, len(versions), min(sizes, default=None), max_retries
    )


def with_rejections(
    result: CompactResult, payload: Sequence[JsonObject], refusals: PromptTooLongRejections
) -> CompactResult:
    """`result` with its refusals in the receipt; "no_progress" where it was refused before."""
    if not refusals.key:
        return result
    gives = history_hash(result.messages) if result.changed else None
    result_tokens = result.tokens.after
    warnings = result.warnings
    if gives in refusals.rejected or refusals.is_spent:
        why = "No progress: the provider has refused what is left as well."
        if refusals.is_spent:
            why = (
                f"No progress: reactive_retries is {refusals.max_retries}, and this request was "
                "compacted so often."
            )
        result = replace(
            result, status="no_progress", messages=list(payload), changed=False, fits=False,
            edits=(), boundary=None, restored=(), summary=None,
            tokens=replace(
                result.tokens, after=result.tokens.before, upper=result.tokens.before_upper
            ),
        )  # fmt: skip
        gives, warnings = None, (*warnings, why)
    if result.status == "no_progress":
        warnings = (
            *warnings,
            f"The provider has refused {refusals.versions} versions of this request. Do not send "
            "it again as it is: shorten what cannot be made smaller, or begin a new conversation.",
        )
    told = {
        "request": refusals.key,
        "result": gives,
        "result_tokens": result_tokens,
        "versions": refusals.versions,
    }
    receipt = {
        **result.receipt,
        "status": result.status,
        "warnings": list(warnings),
        "reactive": told,
    }
    return replace(result, warnings=warnings, receipt=receipt)


def rejection_of(result: CompactResult, refusals: PromptTooLongRejections) -> Rejection | None:
    """The record, for later calls, of the list that was refused and of `result` instead of it."""
    if not refusals.key:
        return None
    gives = history_hash(result.messages) if result.changed else None
    return Rejection(refusals.key, gives, result.tokens.after)
