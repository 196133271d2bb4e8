"""Flags come before the environment, and that before the defaults."""

import os
from pathlib import Path

import pytest
from context_compaction.errors import SettingsError
from context_compaction.file_access import roots_of
from mcp_server_compaction.config import Config, load_config


def test_a_flag_wins_over_the_environment(tmp_path: Path) -> None:
    environment = {"MCP_COMPACTION_ARCHIVE": str(tmp_path / "environment")}
    assert load_config(environment=environment).archive_folder == tmp_path / "environment"
    config = load_config(archive=str(tmp_path / "flag"), environment=environment)
    assert config.archive_folder == tmp_path / "flag"


def test_roots_come_from_flags_or_a_list_in_the_environment(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    environment = {"MCP_COMPACTION_ROOTS": f"{tmp_path / 'a'}{os.pathsep}{tmp_path / 'b'}"}
    assert load_config(environment=environment).roots == roots_of([tmp_path / "a", tmp_path / "b"])
    config = load_config(roots=[str(tmp_path / "b")], environment=environment)
    assert config.roots == roots_of([tmp_path / "b"])


def test_policy_and_model_come_from_the_environment() -> None:
    config = load_config(
        environment={"MCP_COMPACTION_POLICY": "gentle", "MCP_COMPACTION_MODEL": "claude-opus-4-7"}
    )
    assert (config.policy, config.model) == ("gentle", "claude-opus-4-7")
    assert load_config(environment={}).policy == "default"
    with pytest.raises(SettingsError, match=r"gentel.*gentle.*MCP_COMPACTION_POLICY"):
        load_config(environment={"MCP_COMPACTION_POLICY": "gentel"})


def test_a_place_that_is_no_folder_is_refused_by_the_name_of_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(SettingsError, match="MCP_COMPACTION_ARCHIVE"):
        load_config(archive=str(tmp_path / "file"), environment={})
    with pytest.raises(SettingsError, match="MCP_COMPACTION_ROOTS"):
        load_config(environment={"MCP_COMPACTION_ROOTS": str(tmp_path / "absent")})


def test_an_address_names_an_archive_elsewhere_and_a_folder_here_for_what_is_local() -> None:
    def config(address: str) -> Config:
        return load_config(environment={"MCP_COMPACTION_ARCHIVE": address})

    one = config("postgresql://me:secret@host/archive")
    assert one.archive == "postgresql://me:secret@host/archive"
    assert "secret" not in repr(one)
    assert config("postgresql://me:other@host/archive").archive_folder == one.archive_folder
    for other in ("postgresql://host/other", "postgresql://host/archive?tenant=a"):
        assert config(other).archive_folder != one.archive_folder, (
            "imports are noted for each apart"
        )
    with pytest.raises(SettingsError, match="of no kind that is known"):
        config("mysql://host/archive")
