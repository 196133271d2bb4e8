// mcp-server-compaction: written by `mcp-server-compaction install opencode --hooks`,
// removed by `mcp-server-compaction uninstall opencode`. Changes in this file are lost.
import { spawn } from "node:child_process";

const COMMAND = "@COMMAND@";
const FLAGS = "@FLAGS@";
const LARGE_CHARS = "@LARGE_CHARS@";
const LIMIT_MS = 10_000;

// Runs the program and returns its answer; {} after any failure, so that opencode continues.
function ask(event, payload) {
  return new Promise((resolve) => {
    try {
      const [program, ...args] = [...COMMAND, event, ...FLAGS];
      const child = spawn(program, args, { stdio: ["pipe", "pipe", "ignore"] });
      const timer = setTimeout(() => child.kill(), LIMIT_MS);
      let text = "";
      child.stdout.on("data", (part) => (text += part));
      child.on("error", () => resolve({}));
      child.stdin.on("error", () => {});
      child.on("close", () => {
        clearTimeout(timer);
        try {
          resolve(JSON.parse(text || "{}"));
        } catch {
          resolve({});
        }
      });
      child.stdin.end(JSON.stringify(payload));
    } catch {
      resolve({});
    }
  });
}

export const McpServerCompaction = async ({ client, directory }) => {
  async function archive(event, sessionID) {
    try {
      const { data } = await client.session.messages({ path: { id: sessionID } });
      return await ask(event, { session_id: sessionID, cwd: directory, messages: data });
    } catch {
      return {};
    }
  }

  async function shortened(input, text, outputPath) {
    if (typeof text !== "string" || text.length <= LARGE_CHARS) return text;
    const answer = await ask("tool.execute.after", {
      session_id: input.sessionID,
      cwd: directory,
      tool_name: input.tool,
      tool_use_id: input.callID,
      tool_input: input.args,
      tool_response: text,
      output_path: outputPath, // file with the full text of a truncated output
    });
    return typeof answer.output === "string" ? answer.output : text;
  }

  return {
    event: async ({ event }) => {
      if (event.type === "session.idle") await archive(event.type, event.properties.sessionID);
    },
    "tool.execute.after": async (input, output) => {
      if (Array.isArray(output?.content)) {
        for (const part of output.content)
          if (part?.type === "text") part.text = await shortened(input, part.text);
      } else if (output) output.output = await shortened(input, output.output, output.metadata?.outputPath);
    },
    "experimental.session.compacting": async (input, output) => {
      const answer = await archive("session.compacting", input.sessionID);
      if (typeof answer.context === "string") output.context.push(answer.context);
    },
  };
};
