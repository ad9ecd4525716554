"""A certificate authority of the cluster's own, good for a week."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=7)


class Authority:
    """Issues the certificates of one cluster; keys lie in `directory`, readable by its owner."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localcluster")])
        builder = _builder(self._name, self._name, self._key.public_key())
        self._certificate = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        ).sign(self._key, hashes.SHA256())
        self.certificate_file = directory / "ca.crt"
        self.certificate_file.write_bytes(_pem(self._certificate))

    def issue(
        self, name: str, user: str, groups: Sequence[str] = (), addresses: Sequence[str] = ()
    ) -> tuple[Path, Path]:
        """A certificate and its key, `NAME.crt` and `NAME.key`.

        `user` and `groups` are what the API server takes a client for (common name and
        organizations); `addresses` are the host names and IP addresses of a server.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        builder = _builder(x509.Name(subject), self._name, key.public_key()).add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        )
        if addresses:
            names = [_general_name(address) for address in addresses]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate, key_file = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        _write_private(key_file, key)
        return certificate, key_file

    def key_pair(self, name: str) -> tuple[Path, Path]:
        """A bare key pair, `NAME.pub` and `NAME.key`, to sign service account tokens with."""
        key = ec.generate_private_key(ec.SECP256R1())
        public, private = self.directory / f"{name}.pub", self.directory / f"{name}.key"
        public.write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        _write_private(private, key)
        return public, private

    def kubeconfig(self, path: Path, server: str, user: dict[str, str]) -> Path:
        """Write a kubeconfig (as JSON, which is YAML) for `server` with the user's credentials."""
        cluster = {
            "server": server,
            "certificate-authority-data": _base64(self.certificate_file),
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": cluster}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "user"}}],
            "current-context": "local",
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(document, indent=2) + "\n")
        return path

    def client_kubeconfig(
        self, name: str, server: str, user: str, groups: Sequence[str] = ()
    ) -> Path:
        """`NAME.kubeconfig` for a user who shows a client certificate."""
        certificate, key = self.issue(name, user, groups)
        credentials = {
            "client-certificate-data": _base64(certificate),
            "client-key-data": _base64(key),
        }
        return self.kubeconfig(self.directory / f"{name}.kubeconfig", server, credentials)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
    )


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
