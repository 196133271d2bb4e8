"""What a conversation contains of one file, once the calls on it were replayed."""

from dataclasses import dataclass

from context_compaction.activity.loose_parts import LooseLines


@dataclass(frozen=True, slots=True)
class Doubt:
    """What may have changed a file since it was seen.

    Attributes:
        reason: What may have, in a few words.
        at: Position of the message that raised the doubt.
        is_slight: Whether the file most likely says what it said: a formatter changes the layout
            alone, and a helper most often only reads.
        is_settled: Whether since then a part was shown as it was known, or such a one changed.
    """

    reason: str
    at: int
    is_slight: bool = False
    is_settled: bool = False


@dataclass(frozen=True, slots=True)
class FilePart:
    """Lines of a file whose other lines are not known: `text` begins with line `start_line`.

    With `is_moved` it may be another line: something was changed where the text is not known.
    """

    start_line: int
    text: str
    is_moved: bool = False

    @property
    def stop_line(self) -> int:
        """The number of its last line."""
        return self.start_line + self.text.count("\n")


@dataclass(frozen=True, slots=True)
class ReplayedFile:
    """What a conversation contains of one file.

    Positions are those of messages in the list, from 0; -1 is never.

    Attributes:
        path: The path as the calls name it.
        text: All of it; None where that is not known. Only whether a last line ends with a newline
            is not always shown.
        parts: Where the whole is not known, the lines that are.
        seen_at: The message that showed or wrote what the changes were applied to.
        edits: How many changes were applied to that.
        changed_at: The last message that changed it.
        used_at: The last message that read or changed it.
        read_at: The last message that read it.
        reads: How often it was read.
        writes: How often it was written or edited.
        doubt: Why it may be wrong all the same; None where nothing has raised a doubt, or something
            since has shown that it was needless.
        is_sure: Whether what is known of it is the file, unless somebody else has changed it.
        lost: Why the whole is not known any more; "" where it never was, or still is.
        lost_at: Position of the message that lost it.
        touched: First and last line of what was changed since the last commit, newest first.
        is_deleted: Whether it was deleted.
        last_text: Where the whole is not known any more, the one that was, with the changes since
            that could be made to it.
        missed: The messages of changes that are not in `last_text`.
        loose: Where the whole is not known, what changes left in lines that are not, newest first.
    """

    path: str
    text: str | None = None
    parts: tuple[FilePart, ...] = ()
    seen_at: int = -1
    edits: int = 0
    changed_at: int = -1
    used_at: int = -1
    read_at: int = -1
    reads: int = 0
    writes: int = 0
    doubt: Doubt | None = None
    is_sure: bool = False
    lost: str = ""
    lost_at: int = -1
    touched: tuple[tuple[int, int], ...] = ()
    is_deleted: bool = False
    last_text: str | None = None
    missed: tuple[int, ...] = ()
    loose: tuple[LooseLines, ...] = ()

    @property
    def may_be_stale(self) -> bool:
        """Whether it is in doubt, and more than slightly."""
        if self.doubt is None or self.doubt.is_slight:
            return False
        has_older = self.text is not None or bool(self.parts) or not self.loose
        return has_older or self.loose[0].at < self.doubt.at

    @property
    def is_changed(self) -> bool:
        """Whether the conversation itself changed it."""
        return self.writes > 0
