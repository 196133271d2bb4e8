"use strict";
// The compaction and the search inside a host (MCP Apps): what a tool answered, to look at. All that
// comes from an answer is set as text; the host is asked for more by the tools that it has anyway.
(() => {
  const PROTOCOL = "2026-01-26";
  const waiting = new Map();
  let nextId = 1;
  let mayCall = false;
  const main = document.querySelector("main");

  const post = (message) => window.parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
  function request(method, params) {
    const id = nextId++;
    post({ id, method, params });
    return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
  }
  window.addEventListener("message", (event) => {
    const message = event.data;
    if (event.source !== window.parent || message?.jsonrpc !== "2.0") return;
    if (message.method === "ui/notifications/tool-result") show(message.params);
    else if (message.method === "ui/notifications/host-context-changed") dress(message.params);
    else if (message.method !== undefined && message.id !== undefined) post({ id: message.id, result: {} });
    else if (waiting.has(message.id)) {
      const { resolve, reject } = waiting.get(message.id);
      waiting.delete(message.id);
      if (message.error) reject(new Error(message.error.message));
      else resolve(message.result);
    }
  });

  function dress(context) {
    if (context?.theme === "dark" || context?.theme === "light")
      document.documentElement.style.colorScheme = context.theme;
  }
  function make(tag, text, parent, className) {
    const made = document.createElement(tag);
    if (text !== undefined && text !== null) made.textContent = String(text);
    if (className) made.className = className;
    if (parent) parent.append(made);
    return made;
  }
  const number = (value) => Number(value ?? 0).toLocaleString("en");

  function show(result) {
    const answer = result?.structuredContent;
    main.replaceChildren();
    if (Array.isArray(answer?.hits)) showHits(answer);
    else if (answer?.tokens) showCompaction(answer);
    else make("pre", textOf(result), main);
  }
  const textOf = (result) =>
    (result?.content ?? []).filter((part) => part.type === "text").map((part) => part.text).join("\n");

  function showCompaction(answer) {
    const { before, after, trigger, target } = answer.tokens;
    make("h1", `${answer.status}: ${number(before)} → ${number(after)} tokens`, main);
    const meter = make("meter", null, main);
    meter.max = Math.max(before, trigger, 1);
    meter.value = after;
    meter.setAttribute("aria-label", `${number(after)} of ${number(meter.max)} tokens are left`);
    make("p", `Trigger ${number(trigger)}, target ${number(target)}. Session ${answer.session_id}.`, main, "note");
    list("What each layer did", answer.layers, (layer) =>
      `${layer.name}: ${number(layer.tokens_before)} → ${number(layer.tokens_after)} tokens, ${number(layer.edit_count)} edits`);
    const receipt = answer.receipt ?? {};
    list("Carried word for word", receipt.pins?.carried, (pin) => pin.text);
    if (answer.summary) {
      make("h2", "The summary", main);
      make("pre", answer.summary, main);
    }
    const kinds = Object.entries(receipt.losses?.kinds ?? {});
    if (kinds.length) {
      make("h2", `No longer in the context: ${number(receipt.losses.total)} names`, main);
      for (const [kind, found] of kinds) {
        make("p", `${number(found.total)} of the kind ${kind}`, main, "note");
        const names = make("ul", null, main, "names");
        for (const name of found.shown ?? [])
          button(name, make("li", null, names), () => call("search_transcript", { query: String(name), session_id: answer.session_id }));
      }
    }
    const pointers = [...new Set((receipt.edits ?? []).flatMap((edit) => edit.pointers ?? []))];
    pointerList("Originals", [...pointers.slice(0, 40), ...[answer.context_pointer, answer.receipt_pointer].filter(Boolean)]);
    list("To know", [...(answer.warnings ?? []), ...(answer.irreducible ?? [])], (text) => text);
    if (answer.next_step) make("p", answer.next_step, main, "note");
  }
  function list(title, items, words) {
    if (!Array.isArray(items) || !items.length) return;
    make("h2", title, main);
    const made = make("ul", null, main);
    for (const item of items) make("li", words(item), made);
  }
  function pointerList(title, pointers) {
    if (!pointers.length) return;
    make("h2", title, main);
    const made = make("ul", null, main, "names");
    for (const pointer of pointers)
      button(pointer, make("li", null, made), (place) => read(pointer, place));
  }
  function button(text, parent, act) {
    if (!mayCall) return make("code", text, parent);
    const made = make("button", text, parent);
    made.type = "button";
    made.addEventListener("click", () => act(parent));
    return made;
  }

  function showHits(answer) {
    make("h1", `${answer.total_is_exact === false ? "At least " : ""}${number(answer.total)} hits`, main);
    if (mayCall) {
      const form = make("form", null, main);
      const field = make("input", null, form);
      field.setAttribute("aria-label", "Search for other words");
      field.placeholder = "Other words";
      make("button", "Search", form);
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        if (field.value.trim()) call("search_transcript", { query: field.value.trim() });
      });
    }
    if (answer.note) make("p", answer.note, main, "note");
    for (const hit of answer.hits) {
      const box = make("section", null, main, "hit");
      make("p", `${hit.tool_name ?? hit.role ?? ""} ${hit.time ?? ""}${hit.line ? `, line ${hit.line}` : ""}`, box, "note");
      make("pre", hit.snippet, box);
      if (hit.next) make("pre", `${hit.next.role}: ${hit.next.snippet}`, box);
      button(hit.pointer, box, (place) => read(hit.pointer, place));
    }
  }

  async function call(name, given) {
    try {
      show(await request("tools/call", { name, arguments: given }));
    } catch (error) {
      make("p", error.message, main, "bad");
    }
  }
  async function read(pointer, place) {
    place.querySelector("pre.read")?.remove();
    const shown = make("pre", "…", place, "read");
    try {
      shown.textContent = textOf(await request("tools/call", { name: "read_persisted_output", arguments: { output_id: pointer } }));
    } catch (error) {
      shown.textContent = error.message;
    }
  }

  new ResizeObserver(() =>
    post({ method: "ui/notifications/size-changed", params: { height: document.documentElement.scrollHeight } }),
  ).observe(document.body);
  request("ui/initialize", {
    protocolVersion: PROTOCOL,
    appInfo: { name: "mcp-server-compaction", version: document.documentElement.dataset.version },
    appCapabilities: {},
  }).then((host) => {
    mayCall = host?.hostCapabilities?.serverTools !== undefined;
    dress(host?.hostContext);
    post({ method: "ui/notifications/initialized", params: {} });
  });
})();
