"""The transcripts under one root. All of it blocks, in one thread at a time: see `Lanes`."""

from collections.abc import Sequence
from pathlib import Path

from context_compaction.archive.local.blobs import BlobStore
from context_compaction.archive.local.log import session_key
from context_compaction.archive.local.retention import delete_sessions
from context_compaction.archive.local.session_cache import OpenSessions
from context_compaction.archive.local.session_state import LocalState
from context_compaction.archive.outputs import StoredOutput, info_of
from context_compaction.archive.transcripts import TranscriptStore


class LocalTranscripts(TranscriptStore[LocalState]):
    """Transcripts in a folder. `close` lets go of the writer's lock."""

    def __init__(self, root: Path, *, redacts: bool = False) -> None:
        """`redacts` removes secrets from whatever is written from now on."""
        self.root = root
        blobs = BlobStore(root / "blobs")
        self._open = OpenSessions(root, blobs)
        super().__init__(self._open, blobs, redacts)

    def close(self) -> None:
        """Release this writer's name to other processes."""
        self._open.close()

    def output(self, output_id: str, key: str | None = None) -> StoredOutput | None:
        """An output of the session `key`, or of any session known here; None if it is not there."""
        for name in self._open.keys_holding(output_id) if key is None else [key]:
            state = self._open.of_key(name)  # another process may have deleted the session
            record = state.outputs.get(output_id)
            if record is not None:
                body = self._body(state, record)
                return StoredOutput(info_of(record.head, state.session_id), body, self.blobs)
        return None

    def delete(self, session_ids: Sequence[str]) -> int:
        """See `Archive.delete`; the index is not concerned."""
        keys = [self._existing(session_id).folder.name for session_id in session_ids]
        return delete_sessions(self.root, keys)

    def forget(self, session_ids: Sequence[str]) -> None:
        """Drop deleted sessions from memory."""
        for session_id in session_ids:
            self._open.forget(session_key(session_id))
