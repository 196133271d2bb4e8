// A proxy on loopback that shows a server's token, for programs that can't: SERVER_URL TOKEN.
// It prints its own URL. The server checks Host and Origin: they name the server's port there.
import http from "node:http";

const [, , server, token] = process.argv;
const { hostname, port } = new URL(server);

const proxy = http.createServer((asked, answer) => {
  const own = `:${proxy.address().port}`;
  const headers = { ...asked.headers, authorization: `Bearer ${token}` };
  for (const name of ["host", "origin"]) {
    headers[name] = headers[name]?.replace(own, `:${port}`);
    if (headers[name] === undefined) delete headers[name];
  }
  const { url: path, method } = asked;
  const sent = http.request({ hostname, port, path, method, headers }, (got) => {
    answer.writeHead(got.statusCode, got.headers);
    got.pipe(answer);
  });
  sent.on("error", () => answer.destroy());
  answer.on("close", () => sent.destroy());
  asked.pipe(sent);
});
proxy.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${proxy.address().port}/mcp`));
