"""Long reads of an archive report their progress with figures."""

from pathlib import Path

from context_compaction import formats, open_archive, reporting_work

Figures = tuple[int, int, str]


async def figures_of_reading(folder: Path, index: Path, session_id: str) -> list[Figures]:
    """List the sessions and read one of them in a new archive object; return the reports."""
    reports: list[Figures] = []

    def report(done: int, total: int, unit: str) -> None:
        reports.append((done, total, unit))

    with reporting_work(report):
        async with open_archive(folder, index_root=index) as archive:
            await archive.sessions()
            await archive.read_messages(session_id, 0, 9_999)
    return reports


async def test_reads_report_how_much_is_done(tmp_path: Path) -> None:
    raws = [{"role": "user", "content": f"{number} " + "words " * 150} for number in range(5_000)]
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        for name, messages in (("long", raws), ("a", raws[:1]), ("b", raws[:1])):
            parsed = formats.parse(messages, format="anthropic")
            await archive.append(name, parsed, format="anthropic")
    reports = await figures_of_reading(tmp_path / "archive", tmp_path / "index", "long")
    units = {unit for _, _, unit in reports}
    assert units == {"sessions indexed", "MB of the session read", "messages read"}
    assert all(0 <= done <= total for done, total, _ in reports)
    by_unit = {unit: [done for done, _, other in reports if other == unit] for unit in units}
    for unit in ("sessions indexed", "messages read"):
        assert by_unit[unit] == sorted(by_unit[unit])
    assert {total for _, total, unit in reports if unit == "sessions indexed"} == {3}
    assert by_unit["messages read"][-1] == 5_000
    again = await figures_of_reading(tmp_path / "archive", tmp_path / "index", "a")
    assert "sessions indexed" not in {unit for _, _, unit in again}
