"""Times an install from a registry on loopback beside a pull by the Python SDK of ORAS.

Usage: $COFFERDAM_SERVICES/python/bin/python host/cli/benches/registry.py PROGRAM COMPONENT [ROUNDS]

PROGRAM is the `cofferdam` command, COMPONENT any component that `cofferdam pack` takes with an empty manifest. It is
padded to 70 KiB and to 18 MiB. The parts take turns within each round, and the table has medians. `verify and compile`
is an install of the same package from a file, without compiled code; `transfer` is an install by reference without it.
"""

import hashlib
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import oras.client

SIZES = {"70 KiB": 70 << 10, "18 MiB": 18 << 20}
NAME = "github://bench/padded"


def leb(number):
    parts = []
    while True:
        number, low = number >> 7, number & 127
        parts.append(low | (128 if number else 0))
        if not number:
            return bytes(parts)


def padded(component, size):
    """Appends a custom section so that the file has about `size` bytes. It is not compressible."""
    missing = max(size - len(component), 16)
    content = leb(3) + b"pad" + os.urandom(missing)
    return component + b"\0" + leb(len(content)) + content


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def main():
    program, component = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 9
    services = pathlib.Path(sys.prefix).parent
    with tempfile.TemporaryDirectory(prefix="cofferdam-bench-") as work:
        work = pathlib.Path(work)
        home = work / "home"
        environment = {"HOME": str(work), "COFFERDAM_HOME": str(home), "PATH": os.environ["PATH"]}

        def run(*args):
            begun = time.perf_counter()
            subprocess.run([program, *args, "--quiet"], env=environment, cwd=work, check=True, stdout=subprocess.DEVNULL)
            return time.perf_counter() - begun

        port = free_port()
        config = {
            "version": 0.1,
            "log": {"level": "error", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(work / "storage")}},
            "http": {"addr": f"127.0.0.1:{port}"},
        }
        (work / "config.yml").write_text(json.dumps(config))
        registry = subprocess.Popen(
            [services / "registry/usr/bin/docker-registry", "serve", "config.yml"],
            cwd=work,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    time.sleep(0.05)
            measure(run, work, home, port, component.read_bytes(), rounds)
        finally:
            registry.kill()
            registry.wait()


def measure(run, work, home, port, component, rounds):
    run("key", "generate", "--out", "key")
    public = next(line for line in (work / "key").read_text().splitlines() if "ed25519:" in line)
    run("trust", "add", public[public.index("ed25519:"):].split()[0], "--for", "github://bench/*")
    client = oras.client.OrasClient(insecure=True)
    print(f"{'package':8} {'oras pull':>10} {'install by reference':>21} {'verify and compile':>19} {'transfer':>9} {'ratio':>6}")
    for label, size in SIZES.items():
        (work / "c.wasm").write_bytes(padded(component, size))
        (work / "m.toml").write_text(f'[connector]\nname = "{NAME}"\nversion = "1.0.0"\n')
        run("pack", "c.wasm", "--manifest", "m.toml", "-o", "p.wasm")
        run("sign", "p.wasm", "--key", "key", "--replace")
        tag = label.replace(" ", "-").lower()
        reference = f"localhost:{port}/bench/padded:{tag}"
        run("publish", "p.wasm", f"oci://{reference}")
        accept = f"sha256:{hashlib.sha256((work / 'p.wasm').read_bytes()).hexdigest()}"
        times = {"oras": [], "reference": [], "file": []}
        for _ in range(rounds):
            for what, source in [("reference", f"oci://{reference}"), ("file", "p.wasm")]:
                shutil.rmtree(home / "packages", ignore_errors=True)
                shutil.rmtree(home / "cache", ignore_errors=True)
                times[what].append(run("install", source, "--accept", accept))
            shutil.rmtree(work / "out", ignore_errors=True)
            begun = time.perf_counter()
            client.pull(target=reference, outdir=str(work / "out"))
            times["oras"].append(time.perf_counter() - begun)
        median = {what: statistics.median(of) * 1000 for what, of in times.items()}
        transfer = median["reference"] - median["file"]
        print(
            f"{label:8} {median['oras']:7.1f} ms {median['reference']:18.1f} ms {median['file']:16.1f} ms"
            f" {transfer:6.1f} ms {transfer / median['oras']:6.2f}"
        )


main()
