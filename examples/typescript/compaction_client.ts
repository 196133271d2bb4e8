/**
 * An agent loop's end of `compact_messages`: its list in, the list to send to the model out.
 *
 * It sends only what is new since the last call, and gets back splices. Nothing that it remembers has
 * to be right: the server refuses new messages that belong behind another list than it has, and the
 * whole list is handed in then. The same in Python is `mcp_server_compaction.client`.
 */
import { createHash } from "node:crypto";

export type Json = Record<string, unknown>;
export type Mode = "auto" | "micro" | "full" | "reactive" | "record";

/** What `next_step` of an answer says after the client has done what the server's says. */
const APPLIED = "The edits were applied: the list that fit() returned is the one to send.";

/** Of what a call of a tool answers, this is looked at. */
interface ToolResult {
  isError?: boolean;
  structuredContent?: unknown;
  content?: unknown;
}

/** `Client` of @modelcontextprotocol/sdk over any transport, or whatever else calls a tool. */
export interface ToolSession {
  callTool(call: { name: string; arguments: Json }): Promise<unknown>;
}

/** What goes along with every call. */
export interface Wishes {
  session_id?: string;
  context_window?: number;
  target_tokens?: number;
  policy?: string;
  summarizer?: "auto" | "extractive" | "anthropic" | "sampling";
  instructions?: string;
  /** As the resource options://compact_messages describes them; none that names places in a list. */
  options?: Json;
}

export interface Answer {
  session_id: string;
  status: string;
  changed: boolean;
  fits: boolean;
  tokens: { before: number; after: number; upper: number; trigger: number; target: number };
  message_count: number;
  warnings?: string[];
  edits?: { start: number; delete_count: number; insert: Json[] }[] | null;
  context_hash?: string | null;
  /** What the caller does now. */
  next_step?: string;
}

interface Known<M> {
  sessionId: string;
  contextHash: string | null | undefined;
  context: readonly M[];
  contextDigests: readonly string[];
  /** Of all that the context stands for. */
  historyDigests: readonly string[];
}

interface Given<M> {
  /** The known context with what is new, or the list itself where it goes on from nothing known. */
  messages: readonly M[];
  newFrom: number;
  /** Where the new ones begin in the list as it was handed in. */
  listedFrom: number;
  historyDigests: readonly string[];
  isKnown: boolean;
  /** Of `messages`. */
  digests: readonly string[];
}

/** How providers and local servers say it, in lower case. */
const TOO_LONG = [
  "prompt is too long", // Anthropic
  "exceed context limit", // Anthropic, together with the room for the answer
  "request_too_large", // Anthropic, by bytes
  "context_length_exceeded", // OpenAI's code
  "maximum context length", // OpenAI Chat, vLLM, Mistral
  "exceeds the context window", // OpenAI Responses
  "input token count", // Gemini
  "input is too long", // Bedrock
  "exceeds the available context size", // llama.cpp
];

/** Whether a provider's error says that the prompt is too long for the model. */
export function saysTooLong(error: unknown): boolean {
  const text = String(error).toLowerCase();
  return TOO_LONG.some((words) => text.includes(words));
}

/** The server refused a list; the message says what to do. */
export class CompactionError extends Error {}

/**
 * Keeps one conversation within its window.
 *
 * Hand in the list that it gave back with what came since, or your own whole history at every call:
 * both are recognised, and both send only what is new. Lists handed in are never changed. What is
 * remembered is replaced only by an answer that has arrived whole, so a failed call needs no repair.
 */
export class CompactionClient<M extends object = Json> {
  /** The server's last answer, for its figures and warnings. */
  answer: Answer | undefined;
  #known: Known<M> | undefined;
  #usage: { usage: Json; count: number } | undefined;

  constructor(
    private readonly server: ToolSession,
    private readonly wishes: Wishes = {},
  ) {}

  /** The list to send instead of `messages`; those that nobody touched are the same objects. */
  async fit(messages: readonly M[], mode: Mode = "auto"): Promise<M[]> {
    const known = this.#known;
    const listed = digests(messages);
    const given = seen(known, messages, listed);
    const sessionId = known === undefined ? {} : { session_id: known.sessionId };
    if (known !== undefined && given.isKnown && typeof known.contextHash === "string") {
      const fresh = given.messages.slice(given.newFrom);
      const options = { context_hash: known.contextHash, ...this.#anchor(given.newFrom, fresh) };
      const result = await this.#call({ new_messages: fresh, ...sessionId }, options, mode);
      // Else the server has another list: hand in this one.
      if (!result.isError) return this.#learned(result, given.messages, given.digests, given);
    }
    const anchor = this.#anchor(given.listedFrom, messages.slice(given.listedFrom));
    const result = await this.#call({ messages, ...sessionId }, anchor, mode);
    if (result.isError) throw new CompactionError(textOf(result));
    return this.#learned(result, messages, listed, given);
  }

  /** Fit the list and send it; once more, made smaller, if the provider finds it too long. */
  async send<R>(
    messages: readonly M[],
    request: (messages: M[]) => Promise<R>,
    isTooLong: (error: unknown) => boolean = saysTooLong,
  ): Promise<{ messages: M[]; reply: R }> {
    let fitted = await this.fit(messages);
    try {
      return { messages: fitted, reply: await request(fitted) };
    } catch (error) {
      if (!isTooLong(error)) throw error;
    }
    fitted = await this.fit(fitted, "reactive");
    return { messages: fitted, reply: await request(fitted) };
  }

  /** Anchor the next count at the provider's report on the request just answered. */
  learn(usage: Json, messageCount = 1): void {
    this.#usage = { usage, count: messageCount };
  }

  #anchor(start: number, fresh: readonly M[]): Json {
    if (!this.#usage || !this.#known || this.#usage.count > fresh.length) return {};
    return { usage: this.#usage.usage, usage_message_index: start + this.#usage.count - 1 };
  }

  async #call(about: Json, options: Json, mode: Mode): Promise<ToolResult> {
    const all = { ...this.wishes, ...about, mode, reply: "edits" };
    const both = { ...this.wishes.options, ...options };
    const call = { name: "compact_messages", arguments: { ...all, options: both } };
    return (await this.server.callTool(call)) as ToolResult;
  }

  #learned(
    result: ToolResult,
    base: readonly M[],
    sent: readonly string[],
    given: Given<M>,
  ): M[] {
    const answer = result.structuredContent as Answer;
    const fitted = [...base];
    // Of what was sent: the caller may have written into it meanwhile.
    const contextDigests = [...sent];
    for (const edit of [...(answer.edits ?? [])].reverse()) {
      fitted.splice(edit.start, edit.delete_count, ...(edit.insert as M[]));
      contextDigests.splice(edit.start, edit.delete_count, ...digests(edit.insert));
    }
    this.answer = answer.edits?.length ? { ...answer, next_step: APPLIED } : answer;
    this.#usage = undefined;
    this.#known = {
      sessionId: answer.session_id,
      contextHash: answer.context_hash,
      context: [...fitted],
      contextDigests,
      historyDigests: given.historyDigests,
    };
    return fitted;
  }
}

function seen<M extends object>(
  known: Known<M> | undefined,
  messages: readonly M[],
  all: readonly string[],
): Given<M> {
  if (known !== undefined) {
    const context = known.contextDigests.length;
    if (beginsWith(all, known.contextDigests)) {
      const historyDigests = [...known.historyDigests, ...all.slice(context)];
      const places = { newFrom: context, listedFrom: context };
      return { messages, ...places, historyDigests, isKnown: true, digests: all };
    }
    const history = known.historyDigests.length;
    // A caller may have written into the list that it was given back.
    const isIntact = beginsWith(digests(known.context), known.contextDigests);
    if (isIntact && beginsWith(all, known.historyDigests)) {
      const grown = {
        messages: [...known.context, ...messages.slice(history)],
        digests: [...known.contextDigests, ...all.slice(history)],
      };
      const places = { newFrom: context, listedFrom: history };
      return { ...grown, ...places, historyDigests: all, isKnown: true };
    }
  }
  const places = { newFrom: messages.length, listedFrom: messages.length };
  return { messages, ...places, historyDigests: all, isKnown: false, digests: all };
}

/** One for each message: a list may be changed in place, so no object is proof of itself. */
function digests(messages: readonly object[]): string[] {
  return messages.map((m) => createHash("sha256").update(JSON.stringify(m)).digest("base64"));
}

function beginsWith(all: readonly string[], start: readonly string[]): boolean {
  return start.every((digest, at) => all[at] === digest);
}

function textOf(result: ToolResult): string {
  const blocks = Array.isArray(result.content) ? (result.content as { text?: string }[]) : [];
  return blocks.map((block) => block.text ?? "").join("\n");
}
