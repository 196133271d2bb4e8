"use strict";
// What the pages do beside htmx: a transcript of any length, keys, and nothing else.
(() => {
  const MOST_PARTS = 10; // so many parts of a transcript stand in the page at a time
  const NEAR = 1500; // pixels beyond the window in which parts are loaded

  /* A transcript: all parts have their place, and those near the window their content. */
  function transcript(box) {
    const { session, part: size, head } = box.dataset;
    const part = Number(size);
    const count = Number(box.dataset.count);
    const loaded = new Map(); // start -> section, least recently seen first
    const sections = [];
    const given = box.querySelector(".part");
    if (!given || count <= part) return;
    for (const pager of document.querySelectorAll("[data-pager]")) pager.hidden = true;
    const shown = given.children.length || 1;
    const guess = Math.max(40, given.offsetHeight / shown) * part;
    for (let start = 0; start < count; start += part) {
      if (start === Number(given.dataset.start)) {
        sections.push(given);
        continue;
      }
      const section = document.createElement("section");
      section.className = "part";
      section.dataset.start = String(start);
      section.style.height = `${guess * Math.min(1, (count - start) / part)}px`;
      sections.push(section);
    }
    const before = sections.slice(0, sections.indexOf(given));
    box.prepend(...before);
    box.append(...sections.slice(before.length + 1));
    loaded.set(given.dataset.start, given);

    const watcher = new IntersectionObserver(
      (entries) => {
        for (const entry of entries) if (entry.isIntersecting) load(entry.target);
      },
      { rootMargin: `${NEAR}px 0px` },
    );
    for (const section of sections) watcher.observe(section);

    async function load(section) {
      const start = section.dataset.start;
      if (loaded.has(start)) {
        loaded.delete(start);
        loaded.set(start, section);
        return section;
      }
      loaded.set(start, section);
      const stop = Number(start) + part - 1;
      const branch = head ? `?head=${encodeURIComponent(head)}` : "";
      const address = `/sessions/${encodeURIComponent(session)}/messages/${start}-${stop}${branch}`;
      try {
        const answer = await fetch(address);
        if (!answer.ok) throw new Error(String(answer.status));
        section.innerHTML = await answer.text(); // escaped by the server; scripts in it never run
        section.style.height = "";
        htmx.process(section);
        unload();
      } catch (error) {
        loaded.delete(start);
        section.textContent = `These messages could not be loaded (${error.message}). Reload the page.`;
      }
      return section;
    }

    function unload() {
      for (const [start, section] of loaded) {
        if (loaded.size <= MOST_PARTS) return;
        const place = section.getBoundingClientRect();
        const isFar = place.bottom < -NEAR || place.top > innerHeight + NEAR;
        if (!isFar || section.contains(document.activeElement)) continue;
        section.style.height = `${place.height}px`;
        section.replaceChildren();
        loaded.delete(start);
      }
    }

    async function jump(seq) {
      const at = Math.max(0, Math.min(count - 1, seq));
      const section = sections[Math.floor(at / part)];
      section.scrollIntoView();
      await load(section);
      const message = document.getElementById(`m${at}`) || section;
      message.scrollIntoView();
      focusOn(message);
      const branch = head ? `&head=${encodeURIComponent(head)}` : "";
      history.replaceState(null, "", `?at=${at}${branch}#m${at}`);
    }
    const form = document.getElementById("go");
    form?.addEventListener("submit", (event) => {
      event.preventDefault();
      jump(Number(new FormData(form).get("at")));
    });
    document.addEventListener("click", (event) => {
      const link = event.target.closest?.("a[href]");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      const to = new URL(link.href);
      const here = to.origin === location.origin && to.pathname === location.pathname;
      if (!here || !to.searchParams.has("at") || (to.searchParams.get("head") || "") !== (head || "")) return;
      event.preventDefault();
      jump(Number(to.searchParams.get("at")));
    });
    const named = /^#m(\d+)$/.exec(location.hash);
    if (named || Number(box.dataset.at) > 0) {
      const target = document.getElementById(`m${named ? named[1] : box.dataset.at}`);
      (target || given).scrollIntoView();
    }
    box.dataset.ready = "true";
  }

  /* Keys: / to search, j and k from one to the next, Enter to open. */
  const STOPS = ".row-link, .message[data-seq], .hit-link";
  function focusOn(element) {
    for (const other of document.querySelectorAll(".current")) other.classList.remove("current");
    element.classList.add("current");
    element.focus({ preventScroll: true });
  }
  function move(step) {
    const stops = [...document.querySelectorAll(STOPS)];
    if (!stops.length) return;
    const now = stops.findIndex((stop) => stop.classList.contains("current") || stop === document.activeElement);
    const next = stops[Math.max(0, Math.min(stops.length - 1, now + step))];
    focusOn(next);
    next.scrollIntoView({ block: next.matches(".message") ? "start" : "nearest" });
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "/") {
      event.preventDefault();
      const field = document.querySelector("#search-words");
      if (field) field.focus();
      else location.assign("/search");
    } else if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
  });

  const box = document.getElementById("transcript");
  if (box) transcript(box);
})();
