"""A real folder in which an agent works, with the tools and outputs of several hosts."""

import os
import subprocess
from pathlib import Path

from .json_types import Json
from .small import assistant, call, result, user

# Git must not read the settings of the user who runs the tests.
_GIT = {
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b", "GIT_CEILING_DIRECTORIES": "/",
}  # fmt: skip


# Generated commands must not leave the folder, so `cd` refuses to.
_CD_WITHIN = """cd() {{ case "$(builtin cd "$@" > /dev/null 2>&1 && pwd)/" in
    {0}/*) builtin cd "$@" ;; *) return 1 ;; esac; }}
"""


def _environment() -> dict[str, str]:
    """Return the environment of a command without OLDPWD, because `cd -` would leave the folder."""
    return {name: value for name, value in os.environ.items() if name != "OLDPWD"} | _GIT


class WorkingFolder:
    """Files on disk, the messages of the work on them, and the files after each message.

    Attributes:
        payload: The messages, in Anthropic's format.
        states: Texts of all existing files, by the number of messages so far.
    """

    def __init__(
        self,
        folder: Path,
        texts: dict[str, str],
        *,
        shell: str = "shell",
        keeps_shell: bool = False,
    ) -> None:
        """Write `texts` to `folder`. `keeps_shell` runs all commands in one shell."""
        self.folder = folder
        self.here = folder
        self.shell, self.keeps_shell = shell, keeps_shell
        self.payload: list[Json] = [user("Go on.")]
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        self.states = [self.files()]

    def files(self) -> dict[str, str]:
        """Return the current texts on disk, by path."""
        found = sorted(self.folder.rglob("*"))
        names = [path.relative_to(self.folder) for path in found if path.is_file()]
        return {
            str(name): (self.folder / name).read_text(encoding="utf-8")
            for name in names
            if name.parts[0] != ".git"
        }

    def text(self, name: str) -> str | None:
        """Return the text of a file; None if it does not exist."""
        return self.files().get(name)

    def append_call(
        self, tool: str, answer: str | None, /, *, is_error: bool = False, **given: object
    ) -> None:
        """Append a call and its result; no result if `answer` is None."""
        call_id = f"c{len(self.payload)}"
        self.states.append(self.states[-1])
        self.payload.append(assistant(call(call_id, tool, **given)))
        if answer is not None:
            self.payload.append(user([result(call_id, answer, is_error=is_error)]))
        else:
            self.payload.append(user("Go on."))
        self.states.append(self.files())

    # Reading, as hosts number, frame and cut.

    def read_claude(self, name: str, offset: int | None, limit: int | None) -> None:
        """Read like Claude Code: line numbers with an arrow, the first 2,000 lines."""
        text = self.text(name)
        given: Json = {"file_path": name}
        if text is None:
            self.append_call("Read", "<tool_use_error>File does not exist.</tool_use_error>",
                     is_error=True, **given)  # fmt: skip
            return
        rows = text.splitlines()[(offset or 1) - 1 :][: limit or 2_000]
        if not rows:
            return
        given |= {} if offset is None else {"offset": offset}
        given |= {} if limit is None else {"limit": limit}
        shown = "\n".join(f"{n:6d}→{row}" for n, row in enumerate(rows, offset or 1))
        self.append_call(
            "Read", f"{shown}\n\n<system-reminder>\nBe careful.\n</system-reminder>\n", **given
        )

    def read_tabs(self, name: str, offset: int | None, limit: int | None) -> None:
        """Read like Anthropic's text editor: line numbers with a tab, after a heading."""
        text = self.text(name)
        given: Json = {"command": "view", "path": name}
        if text is None:
            self.append_call("str_replace_based_edit_tool", "no such file", is_error=True, **given)
            return
        rows = text.splitlines()
        if offset is not None:
            last = min(len(rows), offset + (limit or 5) - 1)
            if offset > last:
                return
            given["view_range"] = [offset, last]
            rows = rows[offset - 1 : last]
        numbered = "\n".join(f"{n:6d}\t{row}" for n, row in enumerate(rows, offset or 1))
        head = f"Here's the result of running `cat -n` on {name}:\n"
        self.append_call("str_replace_based_edit_tool", head + numbered, **given)

    def read_opencode(self, name: str, offset: int | None, limit: int | None) -> None:
        """Read like opencode: five digits and a bar, inside a tag, with a notice at the end."""
        text = self.text(name)
        if text is None:
            self.append_call("read", "File not found", is_error=True, filePath=name)
            return
        rows = text.split("\n")
        start, count = offset or 0, limit or 2_000
        shown = rows[start : start + count]
        if not shown:
            return
        last = start + len(shown)
        notice = (
            f"(File has more lines. Use 'offset' parameter to read beyond line {last})"
            if last < len(rows)
            else f"(End of file - total {len(rows)} lines)"
        )
        numbered = "\n".join(f"{n:05d}| {row}" for n, row in enumerate(shown, start + 1))
        given: Json = {"filePath": name}
        given |= {} if offset is None else {"offset": offset}
        given |= {} if limit is None else {"limit": limit}
        self.append_call("read", f"<file>\n{numbered}\n\n{notice}\n</file>", **given)

    def read_omp(self, name: str, offset: int | None, limit: int | None) -> None:
        """Read like Oh My Pi: lines around a range in the path; longer files are folded."""
        text = self.text(name)
        if text is None:
            self.append_call("read", f"Path '{name}' not found", is_error=True, path=name)
            return
        rows = text.split("\n")
        rows = rows[:-1] if len(rows) > 1 and not rows[-1] else rows
        if offset is None:
            shown = "\n".join(rows)
            if len(rows) > 4:
                more = f"[…{len(rows) - 4}ln elided; re-read needed ranges, e.g. {name}:3-4]"
                shown = "\n".join([*rows[:2], "…", f"{rows[-2]} {{ … }}", rows[-1], "", more])
            self.append_call("read", shown, path=name)
            return
        last = offset + (limit or 1) - 1
        if offset > len(rows):
            return
        shown = "\n".join(rows[max(0, offset - 2) : last + 3])
        if remaining := max(0, len(rows) - last - 3):
            shown += f"\n\n[{remaining} more lines in file. Use :{last + 4} to continue]"
        self.append_call("read", shown, path=f"{name}:{offset}-{last}")

    def read_pi(self, name: str, offset: int | None, limit: int | None) -> None:
        """Read like pi: plain lines, and a notice if there are more."""
        text = self.text(name)
        if text is None:
            self.append_call("read", "ENOENT: no such file", is_error=True, path=name)
            return
        rows = text.split("\n")
        start = (offset or 1) - 1
        stop = min(len(rows), start + limit) if limit else len(rows)
        shown = "\n".join(rows[start:stop])
        if start >= len(rows):
            return
        if stop < len(rows):
            more = len(rows) - stop
            shown += (
                f"\n\n... ({more} more lines not shown. Use offset={stop + 1} to continue reading)"
            )
        given: Json = {"path": name}
        given |= {} if offset is None else {"offset": offset}
        given |= {} if limit is None else {"limit": limit}
        self.append_call("read", shown, **given)

    def read_shell(self, name: str, offset: int | None, limit: int | None) -> None:
        """Read like Codex: a command with framed output."""
        if offset is None:
            self.run(f"cat {name}")
        else:
            self.run(f"sed -n '{offset},{offset + (limit or 3) - 1}p' {name}")

    # Changes of files.

    def write(self, name: str, text: str) -> None:
        """Write a whole text."""
        (self.folder / name).write_text(text, encoding="utf-8")
        self.append_call(
            "Write", f"File created successfully at: {name}", file_path=name, content=text
        )

    def edit(self, name: str, old: str, new: str, *, everywhere: bool = False) -> None:
        """Edit like Claude Code: replace a text that occurs once, or all occurrences."""
        text = self.text(name)
        given: Json = {
            "file_path": name,
            "old_string": old,
            "new_string": new,
            "replace_all": everywhere,
        }
        found = text.count(old) if text is not None and old else 0
        if not found or (found > 1 and not everywhere):
            self.append_call("Edit", "String to replace not found in file.", is_error=True, **given)
            return
        assert text is not None
        (self.folder / name).write_text(text.replace(old, new), encoding="utf-8")
        self.append_call("Edit", f"The file {name} has been updated.", **given)

    def edit_pi(self, name: str, old: str, new: str) -> None:
        """Edit like pi: replace a text that occurs once."""
        text = self.text(name)
        found = text.count(old) if text is not None and old else 0
        if found != 1:
            # As some formats have it: no sign but the words.
            self.append_call(
                "edit", "Error: could not find the exact text.", path=name, oldText=old, newText=new
            )
            return
        assert text is not None
        (self.folder / name).write_text(text.replace(old, new), encoding="utf-8")
        self.append_call(
            "edit", f"Successfully replaced text in {name}.", path=name, oldText=old, newText=new
        )

    def patch(self, name: str, at: int, old: list[str], new: list[str]) -> None:
        """Patch like Codex: apply a patch with context lines at their first match."""
        text = self.text(name)
        rows = text.splitlines() if text is not None else []
        place = next(
            (n for n in range(len(rows) - len(old) + 1) if rows[n : n + len(old)] == old), None
        )
        body = "".join(f"-{row}\n" for row in old) + "".join(f"+{row}\n" for row in new)
        patch = f"*** Begin Patch\n*** Update File: {name}\n@@\n{body}*** End Patch"
        if not old or place is None:
            self.append_call(
                "apply_patch", "Failed to find expected lines", is_error=True, input=patch
            )
            return
        rows[place : place + len(old)] = new
        (self.folder / name).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        self.append_call(
            "apply_patch", f"Success. Updated the following files:\nM {name}", input=patch
        )

    def run(self, command: str) -> None:
        """Run a command in the shell."""
        where = self.folder / ".git" / "here" if self.keeps_shell else Path("/dev/null")
        if not self.here.is_dir():
            return
        line = f"{command}\ncode=$?; pwd > {where}; exit $code" if self.keeps_shell else command
        line = _CD_WITHIN.format(self.folder) + line
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.here, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=150, check=False, env=_environment(),
        )  # fmt: skip
        if self.keeps_shell and where.exists():
            self.here = Path(where.read_text().strip())
        out = f"Exit code: {done.returncode}\nWall time: 0.1 seconds\nOutput:\n{done.stdout}"
        words = ["bash", "-lc", command]
        self.append_call(self.shell, out, command=words if self.shell == "shell" else command)

    def interrupted(self, name: str, old: str, new: str) -> None:
        """Append an edit that was made but has no result."""
        text = self.text(name)
        if text is not None and old and text.count(old) == 1:
            (self.folder / name).write_text(text.replace(old, new), encoding="utf-8")
        self.append_call("Edit", None, file_path=name, old_string=old, new_string=new)
