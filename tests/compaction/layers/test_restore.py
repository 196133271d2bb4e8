"""Restore: recently used files are inserted after history was replaced, within a budget."""

import re
from pathlib import Path
from typing import Any

import pytest
from context_compaction import CompactRequest, CompactResult, DiskFile, Settings, compact, roots_of
from context_compaction.activity.files import holds_secrets
from context_compaction.layers.base import FileText
from context_compaction.layers.insert_messages import restore_files
from context_compaction.messages.model import Messages, Step, Text
from hypothesis import given
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.small import COUNT, answered, assistant, layer_context, lines, read, user


def restored(files: list[FileText], limit_tokens: int = 1_000_000, **constants: Any) -> Step:
    context = layer_context(
        Settings(**constants), limit_tokens=limit_tokens, files=files, files_at=1
    )
    return restore_files(read([user("the summary"), assistant("answer")]), context)


@given(
    sizes=st.lists(st.integers(1, 9_000), min_size=1, max_size=8),
    total_tokens=st.integers(0, 20_000),
    limit_tokens=st.integers(0, 30_000),
)
def test_restored_files_stay_within_their_limits(
    sizes: list[int], total_tokens: int, limit_tokens: int
) -> None:
    files = [FileText(f"{n}.py", "word\n" * size, "a note") for n, size in enumerate(sizes)]
    step = restored(files, limit_tokens, restore_total_tokens=total_tokens)
    if step.edits:
        assert COUNT.messages(step.messages) <= limit_tokens
        assert COUNT.message(step.messages[1]) <= total_tokens
    assert all(edit.tokens_after <= 5_100 for edit in step.edits)


@pytest.mark.parametrize(
    ("path", "is_secret"),
    [
        (".env", True), ("app/.env.local", True), ("certs/server.pem", True), ("id_rsa", True),
        ("~/.aws/credentials", True), ("credentials.json", True), ("secrets.yaml", True),
        ("k8s/tls.key", True), (".netrc", True), ("prod.tfvars", True),
        ("prod.env", True), (".git-credentials", True), ("deploy_ed25519", True), ("_netrc", True),
        (".pgpass", True), (".npmrc", True), ("config/apiTokens.json", True), ("api_key.txt", True),
        ("~/.kube/config", True), ("client_secret_12.json", True), ("service-account.json", True),
        ("~/.ssh/config", True), ("infra/terraform.tfstate", True), ("db_password", True),
        (".vault_pass", True), ("ansible-vault.yml", True), ("www/wp-config.php", True),
        ("local.settings.json", True), ("settings.json", False), ("default.php", False),
        ("~/.ssh/deploy.pub", False), ("tokenizer.json", False), ("tokens.py", False),
        ("/etc/shadow", True), ("secring.gpg", True), ("shadow.css", False),
        ("conf/secrets.yml.example", False), ("db.env.sample", False),
        (".env.example", False), ("secrets.py", False), ("id_rsa.pub", False), ("env.py", False),
        ("environment.ts", False), ("keyboard.json", False), ("docs/secrets.md", False),
    ],
)  # fmt: skip
def test_files_with_secrets_are_known_by_their_names(path: str, is_secret: bool) -> None:
    assert holds_secrets(path) is is_secret


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("config/database.yml", "production:\n  adapter: postgresql\n  password: hunter2Blue\n"),
        ("~/.m2/settings.xml", "<server><id>ci</id><password>hunter2Blue</password></server>\n"),
        ("gradle.properties", "org.gradle.jvmargs=-Xmx2g\nsigning.password=hunter2Blue\n"),
        ("/etc/mysql/my.cnf", "[client]\nuser=root\npassword=hunter2Blue\n"),
        ("pip.conf", "[global]\nindex-url = https://ci:hunter2Blue@pypi.example.com/simple\n"),
        ("NuGet.Config", '<add key="ClearTextPassword" value="hunter2Blue" />\n'),
        ("compose.yaml", "services:\n  db:\n    environment:\n      DB_PASSWORD: hunter2Blue\n"),
        ("application.properties", "spring.datasource.password=hunter2Blue\nserver.port=8080\n"),
    ],
)
async def test_secrets_in_any_file_do_not_come_back(path: str, text: str) -> None:
    restored, paths = await under_claude_code(
        answered("r", "Read", text, file_path=path),
        answered("w", "Write", "ok", file_path=f"new/{path}", content=text),
    )
    assert path in paths
    assert "[redacted: " in restored
    assert "hunter2Blue" not in restored
    summary = await full(session(path, text))
    assert "hunter2Blue" not in repr(summary.messages)


async def full(payload: list[Json], **more: Any) -> CompactResult:
    request = CompactRequest(mode="full", format="anthropic")
    async with temporary_archive() as archive:
        return await compact(payload, request, archive=archive, **more)


def session(path: str, seen: str = "seen text") -> list[Json]:
    chatter = [m for n in range(9) for m in answered(f"c{n}", "Bash", lines(f"n{n}", 90))]
    return [
        user("Fix it."),
        *answered("r", "Read", seen, file_path=path),
        *chatter,
        assistant("It is fixed."),
        user("Thanks. Now the docs."),
        assistant("On it."),
    ]


def restored_message(messages: Messages) -> str:
    texts = [b.text for message in messages for b in message.blocks if isinstance(b, Text)]
    return "\n".join(text for text in texts if text.startswith("<restored_files>"))


async def under_claude_code(*parts: list[Json], end: str = "Done.") -> tuple[str, list[str]]:
    """Return the text of the restored files, and the paths of all of them, after a summary."""
    payload = [*session("first.py"), *(message for part in parts for message in part)]
    payload += [assistant(end), user("Go on.")]
    request = CompactRequest(mode="full", format="anthropic", policy="claude-code")
    async with temporary_archive() as archive:
        result = await compact(payload, request, archive=archive)
    return restored_message(read(result.messages)), list(result.restored)


async def test_policy_restores_certain_contents_first_then_the_newest_reads() -> None:
    text, paths = await under_claude_code(
        answered("a", "Read", "     1\told a", file_path="a.py"),
        answered("b", "Read", "     1\ttext of b", file_path="b.py"),
        answered("c", "Write", "ok", file_path="c.py", content="text of c"),
        answered("d", "Edit", "ok", file_path="b.py", old_string="1", new_string="2"),
        answered("e", "Read", "     1\tnew a", file_path="a.py"),
        answered("s", "Read", "     1\tKEY=hunter2", file_path=".env"),
        answered("g", "Read", "     1\tgone", file_path="gone.py"),
        answered("h", "Bash", "", command="rm gone.py"),
    )
    assert paths == ["a.py", "first.py", "b.py"]
    assert "File: a.py\nnew a\n\nEnd of file: a.py" in text
    assert re.search(r"File: b\.py \(text unsure since \[\d+\]\)\ntext of b\n", text)
    assert "hunter2" not in text
    assert "not included: .env" in text


async def test_restore_prefers_the_file_on_disk_and_reports_changes() -> None:
    disk = {"same.py": "one\ntwo\n", "changed.py": "one\nthree\n", ".env": "KEY=hunter2"}

    async def read_file(path: str) -> DiskFile | None:
        return DiskFile(disk[path], 1.0) if path in disk else None

    used = [
        *answered("a", "Read", "     1\tone\n     2\ttwo\n", file_path="same.py"),
        *answered("b", "Read", "     1\tone\n     2\ttwo\n", file_path="./changed.py"),
        *answered("c", "Read", "as it was", file_path="gone.py"),
        *answered("d", "Read", "     1\tKEY=hunter2", file_path=".env"),
    ]
    payload = session("unknown.py")
    answer = await full([payload[0], *used, *payload[1:]], read_file=read_file)
    content = restored_message(read(answer.messages))
    assert "File: unknown.py\nseen text\nEnd of file: unknown.py\n" in content
    assert "File: gone.py\nas it was\nEnd of file: gone.py\n" in content
    note = "changed on disk since it was last read here"
    assert f"File: changed.py ({note})\none\nthree\n\nEnd of file: changed.py\n" in content
    assert "File: same.py\none\ntwo\n\nEnd of file: same.py\n" in content
    assert "hunter2" not in str(answer.messages)


async def test_relative_path_is_resolved_from_the_session_folder_or_a_root(
    tmp_path: Path,
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.py").write_text(f"in {name}", encoding="utf-8")
    roots = roots_of([tmp_path / "one", tmp_path])
    result_of_second = await full(session("x.py"), read_file=roots.reader(str(tmp_path / "two")))
    assert "in two" in str(result_of_second.messages)
    rooted = await full(session("x.py"), read_file=roots.reader())
    assert "in one" in str(rooted.messages)


async def test_restore_never_opens_a_file_outside_the_roots(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    outside = tmp_path / "outside.py"
    outside.write_text("do not show", encoding="utf-8")
    (inside / "x.py").write_text("on disk", encoding="utf-8")
    read_file = roots_of([inside]).reader()
    allowed = await full(session(str(inside / "x.py")), read_file=read_file)
    refused = await full(session(str(outside)), read_file=read_file)
    assert "on disk" in str(allowed.messages)
    assert "do not show" not in str(refused.messages)
    assert "seen text" in str(refused.messages)
