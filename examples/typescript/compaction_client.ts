/**
 * Client of `compact_messages` for an agent loop: takes a message list, returns the list to send.
 *
 * It sends only messages added since the last call, and gets splices back. It stays correct if its
 * state is wrong: the server refuses new messages that do not follow its own context, and the
 * client then sends the whole list. The Python version is `mcp_server_compaction.client`.
 */
import { createHash } from "node:crypto";

export type Json = Record<string, unknown>;
export type Mode = "auto" | "micro" | "full" | "reactive" | "record";

/** `next_step` of a reply whose edits the client has applied. */
const APPLIED = "The edits were applied. Send the list that fit() returned.";

/** The fields of a tool result that the client reads. */
interface ToolResult {
  isError?: boolean;
  structuredContent?: unknown;
  content?: unknown;
}

/** `Client` of @modelcontextprotocol/sdk over any transport, or another object that calls tools. */
export interface ToolSession {
  callTool(call: { name: string; arguments: Json }): Promise<unknown>;
}

/** Arguments of every call. */
export interface CallArguments {
  session_id?: string;
  context_window?: number;
  target_tokens?: number;
  policy?: string;
  summarizer?: "auto" | "extractive" | "anthropic" | "sampling";
  instructions?: string;
  /** Options that the resource options://compact_messages describes, except message indices. */
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
  /** What the caller must do next. */
  next_step?: string;
}

interface State<M> {
  sessionId: string;
  contextHash: string | null | undefined;
  context: readonly M[];
  contextDigests: readonly string[];
  /** Digests of the full history that the context replaces. */
  historyDigests: readonly string[];
}

interface Match<M> {
  /** The known context and the new messages, or the passed list if it continues nothing known. */
  messages: readonly M[];
  newFrom: number;
  /** Index of the first new message in the passed list. */
  listedFrom: number;
  historyDigests: readonly string[];
  isKnown: boolean;
  /** Digests of `messages`. */
  digests: readonly string[];
}

/** Texts of errors for a prompt that is too long, in lower case. */
const TOO_LONG = [
  "prompt is too long", // Anthropic
  "exceed context limit", // Anthropic, including max_tokens
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

/** The server refused a list. The message says what to do. */
export class CompactionError extends Error {}

/**
 * Client that keeps one conversation within its window.
 *
 * Pass the list that the last call returned plus new messages, or your own full history at every
 * call. Both are recognized, and both send only new messages. The client never changes your lists.
 * Only a complete reply replaces its state, so a failed call needs no repair.
 */
export class CompactionClient<M extends object = Json> {
  /** Last reply of the server, for its token counts and warnings. */
  answer: Answer | undefined;
  #state: State<M> | undefined;
  #usage: { usage: Json; count: number } | undefined;

  constructor(
    private readonly server: ToolSession,
    private readonly callArguments: CallArguments = {},
  ) {}

  /** Return the list to send instead of `messages`. Unchanged messages are the same objects. */
  async fit(messages: readonly M[], mode: Mode = "auto"): Promise<M[]> {
    const known = this.#state;
    const listed = digests(messages);
    const matched = match(known, messages, listed);
    const sessionId = known === undefined ? {} : { session_id: known.sessionId };
    if (known !== undefined && matched.isKnown && typeof known.contextHash === "string") {
      const fresh = matched.messages.slice(matched.newFrom);
      const options = { context_hash: known.contextHash, ...this.#anchor(matched.newFrom, fresh) };
      const result = await this.#call({ new_messages: fresh, ...sessionId }, options, mode);
      // A refusal means that the server has another context: send the whole list.
      if (!result.isError) return this.#update(result, matched.messages, matched.digests, matched);
    }
    const anchor = this.#anchor(matched.listedFrom, messages.slice(matched.listedFrom));
    const result = await this.#call({ messages, ...sessionId }, anchor, mode);
    if (result.isError) throw new CompactionError(textOf(result));
    return this.#update(result, messages, listed, matched);
  }

  /** Fit the list and send it. If the provider finds it too long, shrink and send it again. */
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

  /** Use the provider's report on the last request as the anchor of the next estimate. */
  learn(usage: Json, messageCount = 1): void {
    this.#usage = { usage, count: messageCount };
  }

  #anchor(start: number, fresh: readonly M[]): Json {
    if (!this.#usage || !this.#state || this.#usage.count > fresh.length) return {};
    return { usage: this.#usage.usage, usage_message_index: start + this.#usage.count - 1 };
  }

  async #call(source: Json, options: Json, mode: Mode): Promise<ToolResult> {
    const common = { ...this.callArguments, ...source, mode, reply: "edits" };
    const allOptions = { ...this.callArguments.options, ...options };
    const call = { name: "compact_messages", arguments: { ...common, options: allOptions } };
    return (await this.server.callTool(call)) as ToolResult;
  }

  #update(
    result: ToolResult,
    base: readonly M[],
    sent: readonly string[],
    matched: Match<M>,
  ): M[] {
    const answer = result.structuredContent as Answer;
    const fitted = [...base];
    // The digests were computed before the call, because the caller may change the list meanwhile.
    const contextDigests = [...sent];
    for (const edit of [...(answer.edits ?? [])].reverse()) {
      fitted.splice(edit.start, edit.delete_count, ...(edit.insert as M[]));
      contextDigests.splice(edit.start, edit.delete_count, ...digests(edit.insert));
    }
    this.answer = answer.edits?.length ? { ...answer, next_step: APPLIED } : answer;
    this.#usage = undefined;
    this.#state = {
      sessionId: answer.session_id,
      contextHash: answer.context_hash,
      context: [...fitted],
      contextDigests,
      historyDigests: matched.historyDigests,
    };
    return fitted;
  }
}

function match<M extends object>(
  known: State<M> | undefined,
  messages: readonly M[],
  all: readonly string[],
): Match<M> {
  if (known !== undefined) {
    const context = known.contextDigests.length;
    if (beginsWith(all, known.contextDigests)) {
      const historyDigests = [...known.historyDigests, ...all.slice(context)];
      const places = { newFrom: context, listedFrom: context };
      return { messages, ...places, historyDigests, isKnown: true, digests: all };
    }
    const history = known.historyDigests.length;
    // The caller may have changed the list that the last call returned.
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

/** A digest of each message. Object identity is no proof, because lists may change in place. */
function digests(messages: readonly object[]): string[] {
  return messages.map((m) => createHash("sha256").update(JSON.stringify(m)).digest("base64"));
}

function beginsWith(all: readonly string[], start: readonly string[]): boolean {
  return start.every((digest, index) => all[index] === digest);
}

function textOf(result: ToolResult): string {
  const blocks = Array.isArray(result.content) ? (result.content as { text?: string }[]) : [];
  return blocks.map((block) => block.text ?? "").join("\n");
}
