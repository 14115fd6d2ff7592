# Pushes a file as a Wasm artifact, or pulls the files of one, with the Python SDK of ORAS:
# oras_copy.py push REFERENCE FILE CONFIG, or oras_copy.py pull REFERENCE DIRECTORY.
import sys

import oras.client

command, reference, path = sys.argv[1:4]
client = oras.client.OrasClient(insecure=True)
if command == "push":
    client.push(
        target=reference,
        files=[f"{path}:application/wasm"],
        manifest_config=f"{sys.argv[4]}:application/vnd.wasm.config.v0+json",
        disable_path_validation=True,
        quiet=True,
    )
else:
    for file in client.pull(target=reference, outdir=path):
        print(file)
