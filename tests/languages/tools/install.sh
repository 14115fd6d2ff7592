#!/usr/bin/env bash
# Installs the tools that tests/languages.rs builds connectors in Python and JavaScript with, from PyPI and npm, into the
# directory $1: `python/bin/componentize-py`, and `node_modules/.bin/componentize-js` for the Node in `python/bin`.
#
# Nothing is installed on the system. Versions are exact, npm's by the lock file of `cofferdam build`. Run again, it does
# nothing until one of the lists changes. Where there is no network, no python3 or no wheel for this machine, it fails and
# says why.
set -euo pipefail
lists=$(cd "$(dirname "$0")" && pwd)
npm=$lists/../../../host/cli/src/project/javascript
mkdir -p "${1:?usage: install.sh DIRECTORY}"
cd "$1"

# Several processes may want them at once.
exec 9>.lock
flock 9
wanted=$(cat "$lists/install.sh" "$lists/requirements.txt" "$npm/package-lock.json" | sha256sum)
if [[ -f installed && $(<installed) == "$wanted" ]]; then exit 0; fi
rm -rf installed python node_modules

python3 -m venv python
python/bin/pip install --quiet --disable-pip-version-check --retries 1 --timeout 20 --requirement "$lists/requirements.txt"
PATH=$PWD/python/bin:$PATH
cp "$npm/package.json" "$npm/package-lock.json" .
# Not `npm ci`: it refuses the lock file that npm itself writes for this package, for the binaries of other systems.
npm install --silent --ignore-scripts --no-audit --no-fund --fetch-retries 1 --fetch-timeout 60000
[[ -x node_modules/.bin/componentize-js ]] || { echo "install.sh: npm installed no componentize-js" >&2; exit 1; }

printf '%s' "$wanted" >installed
