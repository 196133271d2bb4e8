"""The command `migrate` copies an archive and reports the number of sessions and records."""

import json
from pathlib import Path

import anyio
from click.testing import CliRunner
from context_compaction import CompactRequest, compact, open_archive
from mcp_server_compaction.cli import main


def run(*arguments: str | Path, code: int = 0) -> str:
    """Return the output of the program, or its errors if it fails."""
    result = CliRunner().invoke(main, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == code, result.output
    assert not code or not result.stdout
    return result.stderr if code else result.stdout


def test_migrate_copies_only_new_records_again(postgres_address: str, tmp_path: Path) -> None:
    folder, restored = tmp_path / "archive", tmp_path / "back"
    messages = tmp_path / "messages.json"
    messages.write_text(json.dumps([{"role": "user", "content": "needle\n" * 30_000}]), "utf-8")
    run("--archive", folder, "compact", messages, "--mode", "record")
    figures = json.loads(run("migrate", folder, postgres_address, "--json"))
    assert figures["sessions"] == 1
    assert figures["records"] == figures["new_records"] > 0
    again = json.loads(run("migrate", folder, postgres_address, "--json"))
    assert again == figures | {"new_records": 0}
    assert "needle" in run("--archive", postgres_address, "search", "needle")
    report = run("migrate", postgres_address, restored)
    assert "1 sessions" in report
    assert "Tenant: default" in report
    assert "--tenant" in report
    listed = [run("--archive", place, "sessions", "--json") for place in (folder, restored)]
    assert listed[0] == listed[1]
    pointer = f"{json.loads(listed[0])['session_id']}/0"
    read = [run("--archive", place, "read", pointer, "--json") for place in (folder, restored)]
    assert read[0] == read[1]
    assert json.loads(read[0]) == json.loads(messages.read_text("utf-8"))[0]


def test_migrate_copies_one_tenant_when_it_is_named(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"

    async def add_session(tenant: str) -> None:
        async with open_archive(source) as archive:
            request = CompactRequest(mode="record", session_id=f"of-{tenant}")
            messages = [{"role": "user", "content": "Hello."}]
            await compact(messages, request, archive=await archive.for_tenant(tenant))

    async def sessions(tenant: str) -> list[str]:
        async with open_archive(target) as archive:
            infos, _ = await (await archive.for_tenant(tenant)).sessions()
            return [info.session_id for info in infos]

    for tenant in ("default", "acme", "other"):
        anyio.run(add_session, tenant)
    copied = json.loads(run("migrate", source, target, "--tenant", "acme", "--json"))
    assert (copied["sessions"], copied["tenant"]) == (1, "acme")
    assert anyio.run(sessions, "acme") == ["of-acme"]
    assert anyio.run(sessions, "other") == anyio.run(sessions, "default") == []
    folders = len([*source.glob("tenants/*")])
    assert "acne" in run("migrate", source, target, "--tenant", "acne", code=1)
    assert len([*source.glob("tenants/*")]) == folders, "an unknown tenant is not created"
