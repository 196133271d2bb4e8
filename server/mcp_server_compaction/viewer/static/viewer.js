"use strict";
// Scrolling through a transcript of any length, and keyboard shortcuts. htmx does the rest.
(() => {
  const MAX_PARTS = 10; // parts of a transcript that are loaded at a time
  const MARGIN = 1500; // parts within this many pixels of the window are loaded

  /* All parts of the transcript are in the page, but only parts near the window have content. */
  function transcript(box) {
    const { session, part: size, head } = box.dataset;
    const part = Number(size);
    const count = Number(box.dataset.count);
    const loaded = new Map(); // sections by start, least recently seen first
    const sections = [];
    const initial = box.querySelector(".part");
    if (!initial || count <= part) return;
    for (const pager of document.querySelectorAll("[data-pager]")) pager.hidden = true;
    const messageHeight = initial.offsetHeight / (initial.children.length || 1);
    const partHeight = Math.max(40, messageHeight) * part;
    for (let start = 0; start < count; start += part) {
      if (start === Number(initial.dataset.start)) {
        sections.push(initial);
        continue;
      }
      const section = document.createElement("section");
      section.className = "part";
      section.dataset.start = String(start);
      section.style.height = `${partHeight * Math.min(1, (count - start) / part)}px`;
      sections.push(section);
    }
    const before = sections.slice(0, sections.indexOf(initial));
    box.prepend(...before);
    box.append(...sections.slice(before.length + 1));
    loaded.set(initial.dataset.start, initial);

    const watcher = new IntersectionObserver(
      (entries) => {
        for (const entry of entries) if (entry.isIntersecting) load(entry.target);
      },
      { rootMargin: `${MARGIN}px 0px` },
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
        const response = await fetch(address);
        if (!response.ok) throw new Error(`status ${response.status}`);
        section.innerHTML = await response.text(); // the server has escaped it
        section.style.height = "";
        htmx.process(section);
        unload();
      } catch (error) {
        loaded.delete(start);
        section.textContent = `Cannot load these messages (${error.message}). Reload the page.`;
      }
      return section;
    }

    function unload() {
      for (const [start, section] of loaded) {
        if (loaded.size <= MAX_PARTS) return;
        const box = section.getBoundingClientRect();
        const isFar = box.bottom < -MARGIN || box.top > innerHeight + MARGIN;
        if (!isFar || section.contains(document.activeElement)) continue;
        section.style.height = `${box.height}px`;
        section.replaceChildren();
        loaded.delete(start);
      }
    }

    async function jump(seq) {
      const target = Math.max(0, Math.min(count - 1, seq));
      const section = sections[Math.floor(target / part)];
      section.scrollIntoView();
      await load(section);
      const message = document.getElementById(`m${target}`) || section;
      message.scrollIntoView();
      focusOn(message);
      const branch = head ? `&head=${encodeURIComponent(head)}` : "";
      history.replaceState(null, "", `?at=${target}${branch}#m${target}`);
    }
    const form = document.getElementById("go");
    form?.addEventListener("submit", (event) => {
      event.preventDefault();
      jump(Number(new FormData(form).get("at")));
    });
    document.addEventListener("click", (event) => {
      const link = event.target.closest?.("a[href]");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      const url = new URL(link.href);
      const isSamePage = url.origin === location.origin && url.pathname === location.pathname;
      const isSameBranch = (url.searchParams.get("head") || "") === (head || "");
      if (!isSamePage || !isSameBranch || !url.searchParams.has("at")) return;
      event.preventDefault();
      jump(Number(url.searchParams.get("at")));
    });
    const hash = /^#m(\d+)$/.exec(location.hash);
    if (hash || Number(box.dataset.at) > 0) {
      const target = document.getElementById(`m${hash ? hash[1] : box.dataset.at}`);
      (target || initial).scrollIntoView();
    }
    box.dataset.ready = "true";
  }

  /* Keys: / searches, j and k move to the next and previous item, n and p to a change. */
  const STOPS = ".row-link, .message[data-seq], .hit-link";
  const CHANGES = ".row.change";
  function focusOn(element) {
    for (const other of document.querySelectorAll(".current")) other.classList.remove("current");
    element.classList.add("current");
    element.focus({ preventScroll: true });
  }
  function move(step, selector = STOPS) {
    const stops = [...document.querySelectorAll(selector)];
    if (!stops.length) return;
    const current = stops.findIndex((stop) => stop.classList.contains("current") || stop === document.activeElement);
    const next = stops[Math.max(0, Math.min(stops.length - 1, current + step))];
    focusOn(next);
    next.scrollIntoView({ block: next.matches(".message") ? "start" : next.matches(".row") ? "center" : "nearest" });
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
    else if (event.key === "n") move(1, CHANGES);
    else if (event.key === "p") move(-1, CHANGES);
  });
  for (const button of document.querySelectorAll("[data-jump]")) {
    button.parentElement.hidden = false; // without this script the buttons do nothing
    button.addEventListener("click", () => move(Number(button.dataset.jump), CHANGES));
  }

  if (document.querySelector("[data-reload]")) {
    const timer = setTimeout(() => location.reload(), 500);
    addEventListener("beforeunload", () => clearTimeout(timer)); // a reload would stop a navigation
  }
  const box = document.getElementById("transcript");
  if (box) transcript(box);
})();
