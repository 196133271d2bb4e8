"""A flag takes precedence over its variable, and the variable over the default."""

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
    """Return the configuration for flags and environment variables."""
    with mock.patch.dict(os.environ, environment):
        context = main.make_context("program", [*words, "doctor"])
    return load_config(**context.params, environment={})


def test_roots_are_read_from_flags_or_a_variable_with_several_folders(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    both = {"MCP_COMPACTION_ROOTS": f"{tmp_path / 'a'}{os.pathsep}{tmp_path / 'b'}"}
    assert configured(**both).roots == roots_of([tmp_path / "a", tmp_path / "b"])
    assert configured("--root", str(tmp_path / "b"), **both).roots == roots_of([tmp_path / "b"])


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MCP_COMPACTION_SUMMARIZER", "gpt"),
        ("MCP_COMPACTION_SUMMARIZER_TIMEOUT", "soon"),
        ("MCP_COMPACTION_SUMMARIZER_TIMEOUT", "0"),
        ("MCP_COMPACTION_SUMMARIZER_TIMEOUT", "nan"),
        ("MCP_COMPACTION_REDACTION", "maybe"),
        ("MCP_COMPACTION_IMPORT_SESSIONS", "maybe"),
    ],
)
def test_error_names_the_variable_when_its_value_is_invalid(variable: str, value: str) -> None:
    result = CliRunner().invoke(main, ["doctor"], env={variable: value})
    assert result.exit_code == 2
    assert variable in result.stderr


def test_policy_and_model_are_read_from_variables() -> None:
    config = load_config(
        environment={"MCP_COMPACTION_POLICY": "gentle", "MCP_COMPACTION_MODEL": "claude-opus-4-7"}
    )
    assert (config.policy, config.model) == ("gentle", "claude-opus-4-7")
    assert load_config(environment={}).policy == "default"
    with pytest.raises(SettingsError, match=r"gentel.*MCP_COMPACTION_POLICY.*gentle"):
        load_config(environment={"MCP_COMPACTION_POLICY": "gentel"})


def test_error_names_the_setting_when_its_path_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(SettingsError, match="MCP_COMPACTION_ARCHIVE"):
        load_config(archive=str(tmp_path / "file"), environment={})
    with pytest.raises(SettingsError, match="MCP_COMPACTION_ROOTS"):
        load_config(roots=(tmp_path / "absent",))


def test_archive_address_gets_a_local_folder_that_does_not_depend_on_the_password() -> None:
    def config(address: str) -> Config:
        return load_config(archive=address)

    first = config("postgresql://me:secret@host/archive")
    assert first.archive == "postgresql://me:secret@host/archive"
    assert "secret" not in repr(first)
    assert config("postgresql://me:other@host/archive").archive_folder == first.archive_folder
    for other in ("postgresql://host/other", "postgresql://host/archive?tenant=a"):
        assert config(other).archive_folder != first.archive_folder, "one folder for each archive"
    with pytest.raises(SettingsError, match="Unknown archive address mysql"):
        config("mysql://host/archive")
