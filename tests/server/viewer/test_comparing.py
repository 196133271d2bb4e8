"""Policies compared on a session: begun by a form, and watched until it is done."""

import anyio

from tests.server.viewer.site import Site
from tests.server.viewer.test_attacks import strange_parts


async def test_policies_are_compared_beside_no_compaction_while_one_watches(site: Site) -> None:
    form = {"session": "main", "policy": ["default", "three-layer"], "window": "6000"}
    with anyio.fail_after(150):
        begun = await site.http.post("/compare", data=form)
        assert begun.status_code == 303
        while True:
            told = (await site.json("/compare?session=main"))["comparison"]
            if told["rows"] or told["problem"]:
                break
    assert told["problem"] is None
    assert [row["policy"] for row in told["rows"]] == ["no compaction", "default", "three-layer"]
    page = await site.html("/compare?session=main&part=progress")
    assert "no compaction" in page
    assert "hx-get" not in page
    assert strange_parts(page) == []
    assert len((await site.json("/"))["sessions"]) == 2  # it ran in an archive of its own


async def test_what_cannot_be_compared_is_refused(site: Site) -> None:
    for form in (
        {"session": "main"},
        {"session": "main", "policy": "none"},
        {"session": "main", "policy": "default", "window": "9"},
    ):
        assert (await site.http.post("/compare", data=form)).status_code == 400, form
    missing = await site.http.post("/compare", data={"session": "x", "policy": "default"})
    assert missing.status_code == 404
    assert "Policies compared" in await site.html("/compare")
