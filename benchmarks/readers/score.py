"""What the readers answered, as tables: points by condition, and how often a wrong fact was told.

    python benchmarks/readers/score.py [--json]

With `--json` as the viewer's page has them (server/mcp_server_compaction/viewer/readers.json).

Beside this file, for each session and cut: `questions/NAME.json` (`cut_lines`, how many lines of
the transcript had happened, and a list of id, kind, question, answer) and
`answers/NAME.CONDITION.json` (for each id the reader's answer, and what somebody else who did not
know the condition gave for it: `points` 0, 0.5 or 1, `is_wrong` where the reader told as a fact
what is not so). `held_back.json` names the sessions that nobody looked at before the end.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, TypeAlias

HERE = Path(__file__).parent
Row: TypeAlias = dict[str, Any]


def read(path: Path) -> Any:
    """The JSON in a file."""
    return json.loads(path.read_text(encoding="utf-8"))


def tables() -> dict[str, dict[str, list[Row]]]:
    """The graded answers by name of session and cut, then by condition."""
    found: dict[str, dict[str, list[Row]]] = defaultdict(dict)
    for path in sorted((HERE / "answers").glob("*.json")):
        name, condition = path.stem.rsplit(".", 1)
        asked = {row["id"] for row in read(HERE / "questions" / f"{name}.json")["questions"]}
        rows: list[Row] = read(path)
        if {row["id"] for row in rows} != asked:
            raise SystemExit(f"{path.name} does not answer the questions of {name}.")
        found[name][condition] = rows
    return found


def points(rows: list[Row]) -> str:
    """`17.5 of 20, 1 wrong`."""
    wrong = sum(row["is_wrong"] for row in rows)
    return f"{sum(row['points'] for row in rows):g} of {len(rows)}, {wrong} wrong"


def as_json() -> str:
    """The sums by session and condition, and those of all."""
    found = tables()
    summed = {
        name: {
            condition: {
                "points": sum(row["points"] for row in rows),
                "of": len(rows),
                "wrong": sum(row["is_wrong"] for row in rows),
            }
            for condition, rows in by_condition.items()
        }
        for name, by_condition in sorted(found.items())
    }
    total: dict[str, Row] = {}
    for by_condition in summed.values():
        for condition, row in by_condition.items():
            sums = total.setdefault(condition, dict.fromkeys(row, 0))
            for key, value in row.items():
                sums[key] += value
    rows = {**summed, "all": total}
    for row in (row for by_condition in rows.values() for row in by_condition.values()):
        if row["points"] == int(row["points"]):
            row["points"] = int(row["points"])
    return json.dumps({"rows": rows}, indent=1) + "\n"


def main() -> None:
    """Print a table by session and its sums."""
    if "--json" in sys.argv[1:]:
        print(as_json(), end="")
        return
    found = tables()
    held_back: set[str] = set(read(HERE / "held_back.json"))
    conditions = sorted({condition for by_name in found.values() for condition in by_name})
    print("| session, cut | " + " | ".join(conditions) + " |")
    print("|---" * (len(conditions) + 1) + "|")
    for name, rows in sorted(found.items()):
        mark = " (held back)" if name.split(".")[0] in held_back else ""
        cells = [points(rows[c]) if c in rows else "" for c in conditions]
        print(f"| {name}{mark} | " + " | ".join(cells) + " |")
    for title, chosen in (
        ("all", set(found)),
        ("held back", {name for name in found if name.split(".")[0] in held_back}),
    ):
        cells = [
            points([row for name in sorted(chosen) for row in found[name].get(condition, [])])
            for condition in conditions
        ]
        print(f"| **{title}** | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
