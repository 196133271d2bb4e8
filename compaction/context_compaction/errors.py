"""The errors of the library.

The tree::

    CompactionError
    + InvalidMessageError      one message of the input is malformed
    + UnknownFormatError       the input has an unknown or ambiguous format
    + SettingsError            an option, policy or budget is invalid
    + PathNotAllowedError      a file is outside the configured roots, or is not a regular file
    + VocabularyError          the tokenizer's vocabulary is missing or damaged
    + SummaryError             a summary writer failed; the compaction continues without it
      - PromptTooLongError     the prompt is too long for the writer's model
    + HookError                a hook of the caller raised; everything is archived
    + ArchiveError
      - NotFoundError          the session, message or output does not exist
      - ArchiveFullError       the disk is full; the log ends at the last complete line
      - ArchiveBusyError       another process held a lock for too long
      - ArchiveDamagedError    stored bytes do not match their checksum
      - QueryError             a search or read pattern is invalid

Each message names the input, the problem, and what to do next.
"""


class CompactionError(Exception):
    """The base of all errors of the library. Its text is written for models and people."""


class InvalidMessageError(CompactionError):
    """One message of the input is malformed; nothing was written.

    Attributes:
        index: Index of the message in the list, from 0.
        problem: Description of the problem.
        remedy: What the caller should do.
    """

    def __init__(self, index: int, problem: str, remedy: str) -> None:
        super().__init__(f"Message {index}: {problem}. {remedy}")
        self.index = index
        self.problem = problem
        self.remedy = remedy


class UnknownFormatError(CompactionError):
    """The input fits no known format, or several; pass `format`."""


class SettingsError(CompactionError):
    """An option has an unknown name, a wrong type or an invalid value."""

    @classmethod
    def of_postgres(cls, error: ModuleNotFoundError) -> "SettingsError":
        """Return the error for an archive in PostgreSQL that needs a missing package."""
        return cls(
            f"An archive in PostgreSQL needs the package {error.name}. Install it: "
            "pip install 'mcp-server-compaction[postgres]'"
        )


class PathNotAllowedError(CompactionError):
    """A path is outside the configured roots, or is not a regular file."""


class VocabularyError(CompactionError):
    """The vocabulary in the package is missing or does not match its checksum."""


class SummaryError(CompactionError):
    """A summary writer did not write a usable summary."""


class PromptTooLongError(SummaryError):
    """A prompt is too long for the writer's model; a shorter prompt may work."""


class HookError(CompactionError):
    """A hook of the caller raised; `__cause__` is its error.

    Attributes:
        result: The `CompactResult`; None if the hook ran before anything was edited.
    """

    def __init__(self, message: str, result: object = None) -> None:
        super().__init__(message)
        self.result = result


class ArchiveError(CompactionError):
    """An operation of the archive failed."""


class NotFoundError(ArchiveError):
    """The archive does not contain the session, message or output."""

    @classmethod
    def of_session(cls, session_id: str) -> "NotFoundError":
        """Return the error for a missing session."""
        return cls(
            f"The archive has no session {session_id!r}. List the sessions to see their IDs."
        )

    @classmethod
    def of_tenant(cls, tenant: str) -> "NotFoundError":
        """Return the error for a tenant without data."""
        return cls(f"The archive has no data of tenant {tenant!r}. Check the name of the tenant.")


class ArchiveFullError(ArchiveError):
    """The disk is full. Nothing of this call was stored; earlier calls are unchanged."""


class ArchiveBusyError(ArchiveError):
    """Another process held the lock for longer than the limit."""


class ArchiveDamagedError(ArchiveError):
    """Stored bytes do not match their checksum."""


class QueryError(ArchiveError):
    """A query, pattern or range is invalid."""


# Texts of providers' errors for a prompt that is too long, in lower case.
_TOO_LONG = (
    "prompt is too long",  # Anthropic
    "exceed context limit",  # Anthropic, including max_tokens
    "request_too_large",  # Anthropic, by bytes
    "context_length_exceeded",  # OpenAI's code
    "maximum context length",  # OpenAI Chat, vLLM, Mistral
    "exceeds the context window",  # OpenAI Responses
    "input token count",  # Gemini: "... exceeds the maximum number of tokens allowed"
    "input is too long",  # Bedrock
    "exceeds the available context size",  # llama.cpp
)


def is_prompt_too_long(error: object) -> bool:
    """Whether a provider's error, or its text, says that the prompt is too long for the model."""
    text = str(error).lower()
    return any(words in text for words in _TOO_LONG)
