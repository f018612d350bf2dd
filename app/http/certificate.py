"""The certificate of the service, read once: every worker uses the same, whenever it starts."""

import os
import ssl
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from uvicorn import Config

CERT, KEY = "PULLBACK_TLS_CERT", "PULLBACK_TLS_KEY"


class BadCertificate(Exception):
    """The certificate or its key cannot be used."""


@dataclass(frozen=True)
class Certificate:
    """The contents of the files of a certificate and its key, in PEM. A key with a password cannot be used."""

    chain: bytes
    key: bytes

    def __call__(self, config: Config, default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        """Return the context of a server; this is uvicorn's ``ssl_context_factory``."""
        del config, default
        return self.context()

    def context(self) -> ssl.SSLContext:
        """Return the context of a server; raises ``OSError`` if the certificate cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with _in_memory(self.chain) as chain, _in_memory(self.key) as key:
            # An empty password, because OpenSSL would ask for one on the terminal.
            context.load_cert_chain(chain, key if self.key else None, password="")
        return context


def read_certificate(cert: Path, key: Path | None) -> Certificate:
    """Return the certificate in two files, or in one; raises ``BadCertificate``, which names the setting and file."""
    chain, secret = _read(CERT, cert), _read(KEY, key) if key else b""
    holder = f"{KEY}: {key}" if key else f"{CERT}: {cert}"
    if b"-----BEGIN CERTIFICATE" not in chain:
        raise BadCertificate(f"{CERT}: {cert}: expected a certificate in PEM, got none")
    if b"PRIVATE KEY-----" not in (secret or chain):
        hint = "" if key else f", or another file as {KEY}"
        raise BadCertificate(f"{holder}: expected the certificate's key in PEM{hint}, got none")
    if b"ENCRYPTED" in (secret or chain):
        raise BadCertificate(f"{holder}: expected a key without a password")
    certificate = Certificate(chain, secret)
    try:
        certificate.context()
    except OSError as error:
        where = f"{CERT}: {cert}" + (f", {KEY}: {key}" if key else "")
        is_mismatch = isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH"
        reason = "the key is not that of the certificate" if is_mismatch else error.strerror or str(error)
        raise BadCertificate(f"{where}: cannot use the certificate: {reason}") from error
    return certificate


@contextmanager
def _in_memory(content: bytes) -> Generator[str]:
    """Yield the path of a file in memory: OpenSSL loads a certificate only from a file."""
    descriptor = os.memfd_create("certificate")
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"


def _read(setting: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadCertificate(f"{setting}: cannot read {path}: {error.strerror}") from error
