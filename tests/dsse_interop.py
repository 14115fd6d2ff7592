"""The other side of tests/dsse.rs: securesystemslib from PyPI, which is not ours.

verify PUBLIC_HEX KEYID < envelope     verifies, and prints the payload
sign < statement                       signs with a new key; prints {"public": hex, "envelope": ..}
"""

import json
import sys

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner, SSlibKey

IN_TOTO = "application/vnd.in-toto+json"


def verify(public: str, keyid: str) -> None:
    envelope = Envelope.from_dict(json.load(sys.stdin))
    assert envelope.payload_type == IN_TOTO, envelope.payload_type
    key = SSlibKey(keyid, "ed25519", "ed25519", {"public": public})
    envelope.verify([key], 1)
    print(envelope.payload.decode())


def sign() -> None:
    signer = CryptoSigner(Ed25519PrivateKey.generate())
    envelope = Envelope(sys.stdin.buffer.read(), IN_TOTO, {})
    envelope.sign(signer)
    print(json.dumps({"public": signer.public_key.keyval["public"], "envelope": envelope.to_dict()}))


if __name__ == "__main__":
    {"verify": verify, "sign": sign}[sys.argv[1]](*sys.argv[2:])
