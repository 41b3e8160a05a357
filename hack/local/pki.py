"""Keys and certificates of a throw-away control plane, as files: two days, one authority."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from webhook.admission import certificate_authority
from webhook.admission.certificate_authority import pem_of

_LIFE = timedelta(days=2)
_CLOCK_SKEW = timedelta(minutes=5)


@dataclass(frozen=True)
class FileAuthority:
    """A certificate authority that writes what it signs as files."""

    signer: certificate_authority.Authority

    @classmethod
    def create(cls, name: str) -> "FileAuthority":
        """A new self-signed authority, valid from now on."""
        now = datetime.now(UTC)
        return cls(certificate_authority.Authority.create(name, (now - _CLOCK_SKEW, now + _LIFE)))

    @property
    def pem(self) -> bytes:
        """The authority's certificate."""
        return self.signer.pem

    def issue(
        self, folder: Path, file: str, name: str, *, groups: Sequence[str] = (), hosts: Sequence[str] = ()
    ) -> None:
        """Write folder/file.crt and .key: for a server if hosts are given, else for a client."""
        certificate, key = self.signer.issue(name, hosts=hosts, groups=groups)
        (folder / f"{file}.crt").write_bytes(certificate)
        write_key(folder / f"{file}.key", key)


def write_key(path: Path, key: bytes) -> None:
    """Write a private key that only this user may read."""
    path.touch(mode=0o600)
    path.write_bytes(key)


def write_key_pair(folder: Path, file: str) -> None:
    """Write folder/file.key and file.pub: what signs and verifies ServiceAccount tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    write_key(folder / f"{file}.key", pem_of(key))
    (folder / f"{file}.pub").write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
