"""Flags come before the environment, and that before the defaults."""

import os
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner
from context_compaction.errors import SettingsError
from context_compaction.file_access import roots_of
from mcp_server_compaction.cli import main
from mcp_server_compaction.config import Config, load_config


def configured(*words: str, **environment: str) -> Config:
    """The configuration of a command line, in an environment."""
    with mock.patch.dict(os.environ, environment):
        context = main.make_context("program", [*words, "doctor"])
    return load_config(**context.params, environment={})


def test_roots_come_from_flags_or_a_list_in_the_environment(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    both = {"MCP_COMPACTION_ROOTS": f"{tmp_path / 'a'}{os.pathsep}{tmp_path / 'b'}"}
    assert configured(**both).roots == roots_of([tmp_path / "a", tmp_path / "b"])
    assert configured("--root", str(tmp_path / "b"), **both).roots == roots_of([tmp_path / "b"])


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MCP_COMPACTION_SUMMARIZER", "gpt"),
        ("MCP_COMPACTION_SUMMARY_TIMEOUT", "soon"),
        ("MCP_COMPACTION_SUMMARY_TIMEOUT", "0"),
        ("MCP_COMPACTION_SUMMARY_TIMEOUT", "nan"),
        ("MCP_COMPACTION_REDACTION", "maybe"),
        ("MCP_COMPACTION_IMPORT", "maybe"),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name(variable: str, value: str) -> None:
    done = CliRunner().invoke(main, ["doctor"], env={variable: value})
    assert done.exit_code == 2
    assert variable in done.stderr


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
        load_config(roots=[str(tmp_path / "absent")])


def test_an_address_names_an_archive_elsewhere_and_a_folder_here_for_what_is_local() -> None:
    def config(address: str) -> Config:
        return load_config(archive=address)

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
