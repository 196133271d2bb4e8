/**
 * The Vercel AI SDK: its provider's `fetch` fits every request on its way, so nothing is converted.
 *
 *     MODEL_URL=http://localhost:11434/v1 node build/vercel_agent.js
 *
 * The SDK hands its whole history to every step; only what is new travels to the server.
 */
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { generateText, stepCountIs, tool, type ModelMessage } from "ai";
import { z } from "zod";
import { CompactionClient, type Json } from "./compaction_client.js";

// --8<-- [start:adapter]
class Refused extends Error {
  constructor(readonly response: Response, text: string) {
    super(text);
  }
}

export function fittingFetch(compaction: CompactionClient): typeof fetch {
  return async (url, init) => {
    const body = JSON.parse(String(init?.body)) as { messages: Json[] };
    const post = async (messages: Json[]): Promise<Response> => {
      const response = await fetch(url, { ...init, body: JSON.stringify({ ...body, messages }) });
      if (response.status !== 400) return response;
      throw new Refused(response, await response.clone().text());
    };
    try {
      return (await compaction.send(body.messages, post)).reply;
    } catch (error) {
      if (error instanceof Refused) return error.response; // the SDK knows how to tell of it
      throw error;
    }
  };
}
// --8<-- [end:adapter]

const server = new Client({ name: "vercel-agent", version: "1" });
await server.connect(
  new StdioClientTransport({
    command: process.env["SERVER_COMMAND"] ?? "mcp-server-compaction",
    args: (process.env["SERVER_ARGUMENTS"] ?? "").split(" ").filter(Boolean),
    env: process.env as Record<string, string>,
  }),
);
const compaction = new CompactionClient(server, { context_window: 12_000 });
const provider = createOpenAICompatible({
  name: "model",
  baseURL: process.env["MODEL_URL"] ?? "http://localhost:11434/v1",
  fetch: fittingFetch(compaction),
});

const recall = async (name: string, wanted: Json): Promise<string> => {
  const result = await server.callTool({ name, arguments: wanted });
  return (result.content as { text?: string }[]).map((block) => block.text ?? "").join("\n");
};
const files = JSON.parse(process.env["FILES"] ?? "{}") as Record<string, string>;
const tools = {
  list_files: tool({
    description: "List the files.",
    inputSchema: z.object({}),
    execute: () => Object.keys(files).join("\n"),
  }),
  read_file: tool({
    description: "Read a file.",
    inputSchema: z.object({ path: z.string() }),
    execute: ({ path }) => files[path] ?? `There is no ${path}.`,
  }),
  search_transcript: tool({
    description: "Search what has left the context.",
    inputSchema: z.object({ query: z.string(), limit: z.number().optional() }),
    execute: (wanted) => recall("search_transcript", wanted),
  }),
  read_persisted_output: tool({
    description: "Read what a pointer names.",
    inputSchema: z.object({ output_id: z.string(), pattern: z.string().optional() }),
    execute: (wanted) => recall("read_persisted_output", wanted),
  }),
};

const history: ModelMessage[] = [];
for (const question of JSON.parse(process.env["QUESTIONS"] ?? "[]") as string[]) {
  history.push({ role: "user", content: question });
  const result = await generateText({
    model: provider("scripted"),
    messages: history,
    tools,
    maxRetries: 0,
    stopWhen: stepCountIs(40),
  });
  history.push(...result.response.messages);
  console.log(`Model: ${result.text}`);
}
console.log(`${compaction.answer?.message_count} messages stand for ${history.length}.`);
await server.close();
