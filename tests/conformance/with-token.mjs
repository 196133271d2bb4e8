// A loopback proxy that adds a server's access token, for programs that cannot send one.
// Arguments: SERVER_URL TOKEN. It prints its own URL. It replaces its port in the headers Host and
// Origin, because the server checks them.
import http from "node:http";

const [, , server, token] = process.argv;
const { hostname, port } = new URL(server);

const proxy = http.createServer((request, response) => {
  const ownPort = `:${proxy.address().port}`;
  const headers = { ...request.headers, authorization: `Bearer ${token}` };
  for (const name of ["host", "origin"]) {
    headers[name] = headers[name]?.replace(ownPort, `:${port}`);
    if (headers[name] === undefined) delete headers[name];
  }
  const { url: path, method } = request;
  const upstream = http.request({ hostname, port, path, method, headers }, (reply) => {
    response.writeHead(reply.statusCode, reply.headers);
    reply.pipe(response);
  });
  upstream.on("error", () => response.destroy());
  response.on("close", () => upstream.destroy());
  request.pipe(upstream);
});
proxy.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${proxy.address().port}/mcp`));
