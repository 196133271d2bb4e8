/**
 * Vercel AI SDK: its provider's `fetch` fits the list of every request, so nothing is converted.
 *
 *     MODEL_URL=http://localhost:11434/v1 node build/vercel_agent.js
 *
 * The SDK passes its full history to every step. The client sends only new messages to the server.
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
      // The response itself, so that the SDK reports the error of the provider.
      if (error instanceof Refused) return error.response;
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

const recall = async (name: string, args: Json): Promise<string> => {
  const result = await server.callTool({ name, arguments: args });
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
    description:
      "Search the archived messages. Use it for anything said earlier that you cannot see.",
    inputSchema: z.object({ query: z.string(), limit: z.number().optional() }),
    execute: (args) => recall("search_transcript", args),
  }),
  read_persisted_output: tool({
    description: "Read archived content by its o_ ID or transcript:// pointer.",
    inputSchema: z.object({ output_id: z.string(), pattern: z.string().optional() }),
    execute: (args) => recall("read_persisted_output", args),
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
console.log(`${compaction.answer?.message_count} messages replace ${history.length}.`);
await server.close();
