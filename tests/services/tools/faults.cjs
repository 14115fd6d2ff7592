// A server that breaks connections on purpose: mockttp on the port given, its authority in authority.pem here.
const fs = require("node:fs");
const net = require("node:net");
const mockttp = require("mockttp");

const port = Number(process.argv[2]);

// mockttp has no setting for the address, and listens on all of them.
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  return typeof port === "number" ? listen.call(this, port, "127.0.0.1", ...rest) : listen.call(this, port, ...rest);
};

async function main() {
  const https = await mockttp.generateCACertificate({ bits: 2048 });
  fs.writeFileSync("authority.pem", https.cert);
  const server = mockttp.getLocal({ https, http2: false });
  await server.start(port);
  await server.forGet("/text").thenReply(200, "text");
  await server.forGet("/reset").thenResetConnection();
  await server.forGet("/close").thenCloseConnection();
  await server.forGet("/hang").thenTimeout();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
