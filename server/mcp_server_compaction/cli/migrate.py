"""`migrate SOURCE TARGET`: all sessions of one archive into another."""

import json
from contextlib import AbstractAsyncContextManager

import anyio
from context_compaction.archive import Archive, SessionInfo
from context_compaction.archive.copying import Copied, copy_archive
from context_compaction.archive.opening import open_archive
from context_compaction.errors import SettingsError

from mcp_server_compaction.archive_place import archive_place
from mcp_server_compaction.cli.terminal import progress, say


def run_migrate(source: str, target: str, *, tenant: str | None, as_json: bool) -> None:
    """Copy what is missing of a tenant, compare all of it, and say what was done.

    Args:
        source: A folder or an address.
        target: A folder or an address.
        tenant: Whose sessions, in both; None for those that each place names itself.
        as_json: Whether the figures are printed as JSON.

    Raises:
        SettingsError: A place cannot be used, the source is missing, or both are one.
        NotFoundError: The source holds nothing of that tenant.
        ArchiveError: An archive failed, or the target holds another session of the same name.
    """
    folder, address = archive_place(source)
    if address is None and not folder.is_dir():
        raise SettingsError(f"There is no archive in {folder}. Name the one to copy from.")
    if archive_place(source) == archive_place(target):
        raise SettingsError("Source and target are the same archive. Name two.")
    copied, copied_tenant = anyio.run(_copy, source, target, tenant)
    figures = {
        "tenant": copied_tenant,
        "sessions": copied.session_count,
        "records": copied.record_count,
        "new_records": copied.new_count,
    }
    if as_json:
        say(json.dumps(figures))
    else:
        say(
            f"{copied.session_count} sessions with {copied.record_count:,} records are the same in "
            f"both; {copied.new_count:,} of these were new there. These are all of the tenant "
            f"{copied_tenant!r}; each other one, and its tokens, is a matter of its own (--tenant)."
        )


async def _copy(source: str, target: str, tenant: str | None) -> tuple[Copied, str]:
    # As it stands: what was kept with secrets is copied with them.
    async with _opened(source) as first, _opened(target) as second:
        one, other = first, second
        if tenant is not None:
            one = await first.for_tenant(tenant, opens=False)
            other = await second.for_tenant(tenant)
        health = await one.health()
        done = 0

        with progress("Copying") as tell:

            def report(session: SessionInfo, _records: int) -> None:
                nonlocal done
                done += 1
                tell(done / max(health.session_count, 1), session.session_id)

            return await copy_archive(one, other, report=report), one.tenant


def _opened(named: str) -> AbstractAsyncContextManager[Archive]:
    folder, address = archive_place(named)
    return open_archive(address or folder)
