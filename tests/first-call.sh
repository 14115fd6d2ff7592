#!/usr/bin/env bash
# From an empty directory to a first real call, as a new author goes: `cofferdam new`, and `cofferdam dev` with one line of
# input. The call goes to a local server in the place of the service. Prints the seconds of each command.
#
#   tests/first-call.sh COFFERDAM [rust] [python] [js]
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
class Service(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = json.dumps({"id": "7", "title": "seven"}).encode()
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
upstream="api.tickets.example:443=http://127.0.0.1:$(cat port)"

timed() {
  local began=$EPOCHREALTIME
  "$@" > out 2> err || { cat out err >&2; exit 1; }
  awk -v b="$began" -v e="$EPOCHREALTIME" 'BEGIN { printf "%8.1f s", e - b }'
}
for language in "${languages[@]}"; do
  printf '%-8s new' "$language"
  timed "$cofferdam" new "tickets-$language" --owner acme --lang "$language" --http api.tickets.example
  printf '   dev with the first call'
  (cd "tickets-$language" && timed "$cofferdam" dev --upstream "$upstream" <<< 'get-item id=7')
  printf '   -> %s\n' "$(tr -d '\n' < "tickets-$language/out")"
done
