"""The list of the papers' rules names tests that exist."""

import re
from pathlib import Path

FOLDER = Path(__file__).parent
ROW = re.compile(r"^\| (?:S\d|S4's successor|ours) \| .+ \| (\w+\.py)::(\w+) \|$", re.MULTILINE)


def test_every_rule_of_the_papers_names_a_test_that_exists() -> None:
    rows = ROW.findall((FOLDER / "policy_rules.md").read_text(encoding="utf-8"))
    assert len(rows) > 50
    for file, name in rows:
        (path,) = FOLDER.parent.rglob(file)
        source = path.read_text(encoding="utf-8")
        assert re.search(rf"^(?:async )?def {name}\(", source, re.MULTILINE), (file, name)
