"""`migrate` copies an archive as a person would ask for it, and says what it did."""

import json
from pathlib import Path

import anyio
from click.testing import CliRunner
from context_compaction import CompactRequest, compact, open_archive
from mcp_server_compaction.cli import main


def run(*arguments: str | Path, code: int = 0) -> str:
    """What the program answers; at a failure what it complains of."""
    done = CliRunner().invoke(main, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == code, done.output
    assert not code or not done.stdout
    return done.stderr if code else done.stdout


def test_migrate_copies_once_and_then_what_is_new(postgres_address: str, tmp_path: Path) -> None:
    folder, back = tmp_path / "archive", tmp_path / "back"
    said = tmp_path / "said.json"
    said.write_text(json.dumps([{"role": "user", "content": "needle\n" * 30_000}]), "utf-8")
    run("--archive", folder, "compact", said, "--mode", "record")
    figures = json.loads(run("migrate", folder, postgres_address, "--json"))
    assert figures["sessions"] == 1
    assert figures["records"] == figures["new_records"] > 0
    again = json.loads(run("migrate", folder, postgres_address, "--json"))
    assert again == figures | {"new_records": 0}
    assert "needle" in run("--archive", postgres_address, "search", "needle")
    there = run("migrate", postgres_address, back)
    assert "1 sessions" in there
    assert "the tenant 'default'" in there
    assert "--tenant" in there
    listed = [run("--archive", place, "sessions", "--json") for place in (folder, back)]
    assert listed[0] == listed[1]
    pointer = f"{json.loads(listed[0])['session_id']}/0"
    read = [run("--archive", place, "read", pointer, "--json") for place in (folder, back)]
    assert read[0] == read[1]
    assert json.loads(read[0]) == json.loads(said.read_text("utf-8"))[0]


def test_migrate_copies_the_tenant_that_is_named_and_no_other(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"

    async def keep(tenant: str) -> None:
        async with open_archive(source) as archive:
            request = CompactRequest(mode="record", session_id=f"of-{tenant}")
            said = [{"role": "user", "content": "Hello."}]
            await compact(said, request, archive=await archive.for_tenant(tenant))

    async def sessions(tenant: str) -> list[str]:
        async with open_archive(target) as archive:
            found, _ = await (await archive.for_tenant(tenant)).sessions()
            return [session.session_id for session in found]

    for tenant in ("default", "acme", "other"):
        anyio.run(keep, tenant)
    copied = json.loads(run("migrate", source, target, "--tenant", "acme", "--json"))
    assert (copied["sessions"], copied["tenant"]) == (1, "acme")
    assert anyio.run(sessions, "acme") == ["of-acme"]
    assert anyio.run(sessions, "other") == anyio.run(sessions, "default") == []
    folders = len([*source.glob("tenants/*")])
    assert "acne" in run("migrate", source, target, "--tenant", "acne", code=1)
    assert len([*source.glob("tenants/*")]) == folders, "to ask makes no tenant"
