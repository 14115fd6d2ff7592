// An authorisation server on the port given: oauth2-mock-server, which refuses the refresh token "revoked" and says
// which grants it was asked for.
const { OAuth2Server } = require("oauth2-mock-server");

const port = Number(process.argv[2]);

async function main() {
  const server = new OAuth2Server();
  await server.issuer.keys.generate("RS256");
  server.service.on("beforeResponse", (response, request) => {
    console.log(`asked for ${request.body.grant_type}`);
    if (request.body.refresh_token === "revoked") {
      response.statusCode = 400;
      response.body = { error: "invalid_grant" };
    }
  });
  await server.start(port, "127.0.0.1");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
