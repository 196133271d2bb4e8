"""Which call an output belongs to that Claude Code keeps in a file of its own, and of which tool.

Such a file is named after its call, or by a name that the call's result gives: "Full output saved
to: …/tool-results/NAME.txt".
"""

import re
from dataclasses import dataclass

from context_compaction.archive import Archive, ArchivedMessage
from context_compaction.errors import InvalidMessageError, NotFoundError
from context_compaction.formats import FORMATS
from context_compaction.messages.model import text_of, tool_calls, tool_results

_READ_MESSAGES = 500
_SAVED_AS = re.compile(r"tool-results[/\\]([\w.-]+)\.txt")


@dataclass(frozen=True, slots=True)
class Call:
    """A call, and its tool where that is known."""

    call_id: str
    tool_name: str | None


class Calls:
    """The calls of one session after the other, each session read once."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._begin("")

    async def of_file(self, session_id: str, name: str) -> Call:
        """The call whose output is in the file `name` (without its ending) of a session.

        Raises:
            ArchiveError: The archive cannot be read.
        """
        if session_id != self._session_id:
            self._begin(session_id)
        await self._read_on()
        call_id = self._call_of_file.get(name, name)
        return Call(call_id, self._tools.get(call_id))

    def _begin(self, session_id: str) -> None:
        self._session_id = session_id
        self._read_to = 0
        self._tools: dict[str, str] = {}
        self._call_of_file: dict[str, str] = {}

    async def _read_on(self) -> None:
        """Take in what the session holds and was not read yet."""
        while True:
            stop = self._read_to + _READ_MESSAGES
            try:
                found = await self._archive.read_messages(self._session_id, self._read_to, stop - 1)
            except NotFoundError:  # its messages were not imported
                return
            for message in found:
                self._learn(message)
            if not found:
                return
            self._read_to = found[-1].seq + 1

    def _learn(self, archived: ArchivedMessage) -> None:
        try:
            message = FORMATS[archived.format].parse_message(archived.raw, 0)
        except (KeyError, InvalidMessageError):  # stored by another version
            return
        self._tools |= {call.call_id: call.name for call in tool_calls(message)}
        for result in tool_results(message):
            saved = _SAVED_AS.findall(text_of(result.content))
            self._call_of_file |= dict.fromkeys(saved, result.call_id)
