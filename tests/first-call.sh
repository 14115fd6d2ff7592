#!/usr/bin/env bash
# From an empty directory to a first real call, as a new author goes: `cofferdam new`, and `cofferdam dev` with one line of
# input. The call goes to a local server in the place of the service. Prints the seconds of each command. With `openapi`,
# the project comes from the address of the service's description.
#
#   tests/first-call.sh COFFERDAM [rust] [python] [js] [openapi]
set -euo pipefail
cofferdam=$(realpath "$1")
shift
languages=("${@:-rust}")
work=$(mktemp -d)
trap 'kill "$server"; rm -rf "$work"' EXIT
export COFFERDAM_HOME=$work/home XDG_CONFIG_HOME=$work/config XDG_CACHE_HOME=$work/cache
cd "$work"

python3 - > port <<'PY' &
import http.server, json
text = {"type": "string"}
item = {"type": "object", "required": ["id", "title"], "properties": {"id": text, "title": text}}
answer = {"description": "The item.", "content": {"application/json": {"schema": item}}}
parameter = {"name": "id", "in": "path", "required": True, "schema": text}
get = {"operationId": "getItem", "parameters": [parameter], "responses": {"200": answer}}
description = {
    "openapi": "3.1.0", "info": {"title": "Tickets", "version": "1"},
    "servers": [{"url": "https://api.tickets.example"}], "paths": {"/items/{id}": {"get": get}},
}
class Service(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        found = description if self.path == "/openapi.json" else {"id": "7", "title": "seven"}
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
print(server.server_port, flush=True)
server.serve_forever()
PY
server=$!
until [[ -s port ]]; do sleep 0.05; done
server_url=http://127.0.0.1:$(cat port)
upstream="api.tickets.example:443=$server_url"

timed() {
  local began=$EPOCHREALTIME
  "$@" > out 2> err || { cat out err >&2; exit 1; }
  awk -v b="$began" -v e="$EPOCHREALTIME" 'BEGIN { printf "%8.1f s", e - b }'
}
for language in "${languages[@]}"; do
  source=(--lang "$language" --http api.tickets.example)
  if [[ $language == openapi ]]; then source=(--openapi "$server_url/openapi.json"); fi
  printf '%-8s new' "$language"
  timed "$cofferdam" new "tickets-$language" --owner acme "${source[@]}"
  printf '   dev with the first call'
  (cd "tickets-$language" && timed "$cofferdam" dev --upstream "$upstream" <<< 'get-item id=7')
  printf '   -> %s\n' "$(tr -d '\n' < "tickets-$language/out")"
done
