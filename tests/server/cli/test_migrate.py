"""`migrate` copies an archive as a person would ask for it, and says what it did."""

import json
import subprocess
import sys
from pathlib import Path

import anyio
from context_compaction import CompactRequest, compact, open_archive


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mcp_server_compaction", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=150,
    )


def test_migrate_copies_once_and_then_what_is_new(postgres_address: str, tmp_path: Path) -> None:
    folder, back = tmp_path / "archive", tmp_path / "back"
    said = tmp_path / "said.json"
    said.write_text(json.dumps([{"role": "user", "content": "needle\n" * 30_000}]), "utf-8")
    kept = run("--archive", folder, "compact", said, "--mode", "record")
    assert kept.returncode == 0, kept.stderr
    first = run("migrate", folder, postgres_address, "--json")
    assert first.returncode == 0, first.stderr
    figures = json.loads(first.stdout)
    assert figures["sessions"] == 1
    assert figures["records"] == figures["new_records"] > 0
    again = json.loads(run("migrate", folder, postgres_address, "--json").stdout)
    assert again == figures | {"new_records": 0}
    found = run("--archive", postgres_address, "search", "needle")
    assert "needle" in found.stdout, found.stderr
    there = run("migrate", postgres_address, back)
    assert there.returncode == 0, there.stderr
    assert "1 sessions" in there.stdout
    assert "the tenant 'default'" in there.stdout
    assert "--tenant" in there.stdout
    listed = [run("--archive", place, "sessions", "--json").stdout for place in (folder, back)]
    assert listed[0] == listed[1]
    pointer = f"{json.loads(listed[0])['session_id']}/0"
    read = [run("--archive", place, "read", pointer, "--json").stdout for place in (folder, back)]
    assert read[0] == read[1]
    assert json.loads(read[0]) == json.loads(said.read_text("utf-8"))[0]
    for wrong in ((folder, folder), (tmp_path / "nothing", folder)):
        refused = run("migrate", *wrong)
        assert refused.returncode == 2
        assert "Name" in refused.stderr


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
    done = run("migrate", source, target, "--tenant", "acme", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sessions"] == 1
    assert json.loads(done.stdout)["tenant"] == "acme"
    assert anyio.run(sessions, "acme") == ["of-acme"]
    assert anyio.run(sessions, "other") == anyio.run(sessions, "default") == []
    wrong = run("migrate", source, target, "--tenant", "a b")
    assert wrong.returncode == 2
    assert "tenant" in wrong.stderr
    folders = len([*source.glob("tenants/*")])
    typo = run("migrate", source, target, "--tenant", "acne")
    assert (typo.returncode, typo.stdout) == (1, "")
    assert "acne" in typo.stderr
    assert len([*source.glob("tenants/*")]) == folders, "to ask makes no tenant"
