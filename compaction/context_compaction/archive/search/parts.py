"""Old names of `documents` and `search/filters`; goes when nothing asks for them any more."""

from context_compaction.archive.documents import MIN_DOC_TERMS, parts_of_records
from context_compaction.archive.search.filters import (
    role_of_record as role_in,
)
from context_compaction.archive.search.filters import (
    tool_tag as tool_token,
)
from context_compaction.archive.search.filters import (
    tools_of_record as tools_in,
)

__all__ = ["MIN_DOC_TERMS", "parts_of_records", "role_in", "tool_token", "tools_in"]
