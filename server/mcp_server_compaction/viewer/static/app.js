"use strict";
// Shows a compaction or a search inside a host (MCP Apps). Content of results is set as text only.
// Further content is read through the server's tools.
(() => {
  const PROTOCOL = "2026-01-26";
  const pending = new Map(); // requests to the host by id
  let nextId = 1;
  let canCallTools = false;
  let query = "";
  const main = document.querySelector("main");

  const post = (message) => window.parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
  function request(method, params) {
    const id = nextId++;
    post({ id, method, params });
    return new Promise((resolve, reject) => pending.set(id, { resolve, reject }));
  }
  window.addEventListener("message", (event) => {
    const message = event.data;
    if (event.source !== window.parent || message?.jsonrpc !== "2.0") return;
    if (message.method === "ui/notifications/tool-input") query = message.params?.arguments?.query ?? "";
    else if (message.method === "ui/notifications/tool-result") show(message.params);
    else if (message.method === "ui/notifications/host-context-changed") applyTheme(message.params);
    else if (message.method !== undefined && message.id !== undefined) post({ id: message.id, result: {} });
    else if (pending.has(message.id)) {
      const { resolve, reject } = pending.get(message.id);
      pending.delete(message.id);
      if (message.error) reject(new Error(message.error.message));
      else resolve(message.result);
    }
  });

  function applyTheme(context) {
    if (context?.theme === "dark" || context?.theme === "light")
      document.documentElement.style.colorScheme = context.theme;
  }
  function add(tag, text, parent, className) {
    const element = document.createElement(tag);
    if (text !== undefined && text !== null) element.textContent = String(text);
    if (className) element.className = className;
    if (["p", "pre", "li"].includes(tag)) element.dir = "auto";
    parent.append(element);
    return element;
  }
  const number = (value) => Number(value ?? 0).toLocaleString("en");

  function show(result) {
    const content = result?.structuredContent;
    main.replaceChildren();
    if (Array.isArray(content?.hits)) showHits(content);
    else if (content?.tokens) showCompaction(content);
    else add("pre", textOf(result), main);
  }
  const textOf = (result) =>
    (result?.content ?? []).filter((part) => part.type === "text").map((part) => part.text).join("\n");

  // Replies have instructions for the model, so people get sentences of their own.
  const SENTENCES = {
    compacted: "The conversation was compacted. Everything that left it is in the archive and can be read below.",
    unchanged: "The conversation fits its window. Nothing was changed.",
    repaired: "Messages that the provider would refuse were repaired. Nothing else was changed.",
    planned: "This is a plan. Nothing was changed.",
    prepared: "A compaction was prepared. It takes effect with the next request.",
    needs_summary: "The model is asked to write a summary. Nothing was changed yet.",
    no_progress: "Nothing could be made smaller. The reasons are listed below.",
    undone: "A compaction was undone. Nothing was deleted.",
  };
  function showCompaction(content) {
    const { before, after, trigger, target } = content.tokens;
    add("h1", before === after ? `${number(after)} tokens` : `${number(before)} → ${number(after)} tokens`, main);
    add("p", SENTENCES[content.status] ?? content.status, main);
    const meter = add("meter", null, main);
    meter.max = Math.max(before, trigger, 1);
    meter.value = after;
    meter.setAttribute("aria-label", `${number(after)} of ${number(meter.max)} tokens remain`);
    add("p", `Trigger ${number(trigger)}, target ${number(target)}. Session ${content.session_id}.`, main, "note");
    addList("Layers", content.layers, (layer) =>
      `${layer.name}: ${number(layer.tokens_before)} → ${number(layer.tokens_after)} tokens, ${number(layer.edit_count)} edits`);
    const receipt = content.receipt ?? {};
    addList("Rules and pinned texts", receipt.pins?.carried, (pin) => pin.text);
    if (content.summary) {
      add("h2", "Summary", main);
      add("pre", content.summary, main);
    }
    const kinds = Object.entries(receipt.losses?.kinds ?? {});
    if (kinds.length) {
      add("h2", `Names no longer in the context: ${number(receipt.losses.total)}`, main);
      for (const [kind, names] of kinds) {
        add("p", `${kind}: ${number(names.total)}`, main, "note");
        const list = add("ul", null, main, "names");
        for (const name of names.shown ?? [])
          addButton(name, add("li", null, list), () => search(String(name), content.session_id));
      }
    }
    const pointers = [...new Set((receipt.edits ?? []).flatMap((edit) => edit.pointers ?? []))];
    const originals = [...pointers.slice(0, 40), ...[content.context_pointer, content.receipt_pointer].filter(Boolean)];
    if (originals.length) {
      add("h2", "Originals", main);
      const list = add("ul", null, main, "names");
      for (const pointer of originals) addButton(pointer, add("li", null, list), (item) => read(pointer, item));
    }
    addList("Warnings", [...(content.warnings ?? []), ...(content.irreducible ?? [])], (text) => text);
  }
  function addList(title, items, textOfItem) {
    if (!Array.isArray(items) || !items.length) return;
    add("h2", title, main);
    const list = add("ul", null, main);
    for (const item of items) add("li", textOfItem(item), list);
  }
  function addButton(text, parent, onClick) {
    if (!canCallTools) return add("code", text, parent);
    const button = add("button", text, parent);
    button.type = "button";
    button.addEventListener("click", () => onClick(parent));
    return button;
  }

  function showHits(content) {
    add("h1", `${content.total_is_exact === false ? "At least " : ""}${number(content.total)} hits`, main);
    if (canCallTools) {
      const form = add("form", null, main);
      const field = add("input", null, form);
      field.setAttribute("aria-label", "Search for other words");
      field.placeholder = "Other words";
      add("button", "Search", form);
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        if (field.value.trim()) search(field.value.trim());
      });
    }
    for (const hit of content.hits) {
      const box = add("section", null, main, "hit");
      const time = hit.time ? `${hit.time.replace("T", " ")} UTC` : "";
      add("p", [hit.tool_name ?? hit.role, time, hit.line && `line ${hit.line}`].filter(Boolean).join(", "), box, "note");
      addMarked(hit.snippet, box);
      if (hit.next) add("pre", `${hit.next.role}: ${hit.next.snippet}`, box);
      addButton(hit.pointer, box, (section) => read(hit.pointer, section));
    }
  }
  /* A passage in which the words of the query are marked. */
  function addMarked(text, parent) {
    const passage = add("pre", null, parent);
    const words = query.match(/[\p{L}\p{N}]{2,}/gu) ?? [];
    const parts = words.length ? text.split(new RegExp(`(${words.join("|")})`, "giu")) : [text];
    parts.forEach((part, index) => (index % 2 ? add("mark", part, passage) : passage.append(part)));
  }

  async function search(words, session) {
    try {
      const result = await request("tools/call", { name: "search_transcript", arguments: { query: words, session_id: session } });
      query = words;
      show(result);
    } catch (error) {
      add("p", error.message, main, "bad");
    }
  }
  /* Shows a part of an original. The app itself calls the tool, so this costs no tokens. */
  async function read(pointer, parent, offset = 0) {
    for (const shown of parent.querySelectorAll(".read")) shown.remove();
    const original = add("div", null, parent, "read");
    add("pre", "…", original);
    let parts;
    try {
      parts = (await request("tools/call", { name: "read_persisted_output", arguments: { output_id: pointer, offset } })).content;
    } catch (error) {
      original.firstChild.textContent = error.message;
      return;
    }
    original.replaceChildren();
    const text = parts?.[0]?.text ?? "";
    addMarked(text, original);
    // The second part tells the model which part of the text it got.
    const span = /Characters (\d+)-(\d+) of (\d+)/.exec(parts?.[1]?.text ?? "");
    if (!span) return;
    const [start, stop, size] = span.slice(1).map(Number);
    const row = add("p", `Characters ${number(start)} to ${number(stop)} of ${number(size)} `, original, "note");
    const page = (label, target) => {
      const button = add("button", label, row);
      button.type = "button";
      button.addEventListener("click", () => read(pointer, parent, target));
    };
    if (start > 0) page("Previous part", Math.max(0, start - (stop - start)));
    if (stop < size) page("Next part", stop);
  }

  new ResizeObserver(() =>
    post({ method: "ui/notifications/size-changed", params: { height: document.documentElement.scrollHeight } }),
  ).observe(document.body);
  request("ui/initialize", {
    protocolVersion: PROTOCOL,
    appInfo: { name: "mcp-server-compaction", version: document.documentElement.dataset.version },
    appCapabilities: {},
  }).then((host) => {
    canCallTools = host?.hostCapabilities?.serverTools !== undefined;
    applyTheme(host?.hostContext);
    post({ method: "ui/notifications/initialized", params: {} });
  });
})();
