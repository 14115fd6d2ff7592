# A collector on the port given: Rotel, which PyPI has as a program; it prints every span that it takes.
import os
import pathlib
import sys
import sysconfig

import rotel

agent = pathlib.Path(rotel.__file__).parent / "rotel-agent"
# It looks for the library of the Python that it came with.
path = [sysconfig.get_config_var("LIBDIR") or "", os.environ.get("LD_LIBRARY_PATH", "")]
os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, path))
os.execv(agent, [
    "rotel-agent", "start", "--otlp-http-endpoint", f"127.0.0.1:{sys.argv[1]}", "--otlp-grpc-endpoint", "127.0.0.1:0",
    "--exporter", "blackhole", "--debug-log", "traces", "--debug-log-verbosity", "detailed",
])
