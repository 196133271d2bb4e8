"""Every error that the library raises on purpose.

The tree::

    CompactionError
    + InvalidMessageError      one message of the input is malformed
    + UnknownFormatError       the input is in no format we know, or in several
    + SettingsError            an option, policy or budget is out of range
    + PathNotAllowedError      a file lies outside the configured roots, or is no regular file
    + VocabularyError          the shipped tokenizer vocabulary is missing or damaged
    + SummaryError             a summary writer failed; compaction goes on without it
      - PromptTooLongError     the writer's model takes less than it was given
    + HookError                a hook of the caller raised; the archive has everything
    + ArchiveError
      - NotFoundError          no such session, message or output
      - ArchiveFullError       the disk is full; the log ends at the last whole line
      - ArchiveBusyError       another process held a lock for too long
      - ArchiveDamagedError    stored bytes do not match their checksum
      - QueryError             a search or read pattern cannot be used

Each message names the input, what is wrong with it, and what to do next.
"""


class CompactionError(Exception):
    """The root of every expected failure. Its text is written for the caller, model or person."""


class InvalidMessageError(CompactionError):
    """One message of the input is malformed; nothing was written.

    Attributes:
        index: Position of the message in the list, from 0.
        problem: What is wrong with it.
        remedy: What would be right.
    """

    def __init__(self, index: int, problem: str, remedy: str) -> None:
        super().__init__(f"Message {index}: {problem}. {remedy}")
        self.index = index
        self.problem = problem
        self.remedy = remedy


class UnknownFormatError(CompactionError):
    """The shape of the input fits no known format; `format` can name it."""


class SettingsError(CompactionError):
    """A setting has an unknown name, a wrong type, or a value out of range."""


class PathNotAllowedError(CompactionError):
    """A path lies outside the configured roots, or is not a regular file."""


class VocabularyError(CompactionError):
    """The shipped vocabulary is missing or does not match its checksum."""


class SummaryError(CompactionError):
    """A summary writer could not write a usable summary."""


class PromptTooLongError(SummaryError):
    """A prompt is longer than the writer's model takes; a shorter one may do."""


class HookError(CompactionError):
    """A hook of the caller raised; `__cause__` holds its error.

    Attributes:
        result: The `CompactResult`, where there was one already; None where nothing was edited.
    """

    def __init__(self, message: str, result: object = None) -> None:
        super().__init__(message)
        self.result = result


class ArchiveError(CompactionError):
    """The archive could not do what was asked."""


class NotFoundError(ArchiveError):
    """The archive holds no session, message or output of that name."""

    @classmethod
    def of_session(cls, session_id: str) -> "NotFoundError":
        """The error for a session that an archive does not hold."""
        return cls(
            f"The archive holds no session {session_id!r}. List the sessions to see its ids."
        )

    @classmethod
    def of_tenant(cls, tenant: str) -> "NotFoundError":
        """The error for a tenant of whom an archive holds nothing."""
        return cls(f"The archive holds nothing of a tenant {tenant!r}. Check the tenant's name.")


class ArchiveFullError(ArchiveError):
    """No space is left; nothing of this call was kept, all earlier calls were."""


class ArchiveBusyError(ArchiveError):
    """Another process held the lock for longer than the limit."""


class ArchiveDamagedError(ArchiveError):
    """Stored bytes do not match their checksum."""


class QueryError(ArchiveError):
    """A query, pattern or range cannot be used as given."""
