"""5, 12, 13 and 15: what Secrets hold in place of certificates, at any time, and how many there may be."""

import base64
import datetime
from functools import cache
from itertools import chain

import msgspec
import pytest
import trio
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from haptic_trio.k8s.resource import Resource
from tests.bad_inputs.world import Case, World, evil
from tests.support.kubernetes import tls_secret
from tests.support.traffic.servers import names_of

pytestmark = pytest.mark.haproxy

SECRET = "Secret default/bad"
HOST = "evil.example.com"
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
AUTHORITY = trustme.CA()
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def rsa_key(size: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65_537, size)


def pem_of(key: Key, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    return key.private_bytes(Encoding.PEM, form, NoEncryption())


def certificate(key: Key, *, ends: datetime.datetime = NOW + datetime.timedelta(days=3650), host: str = HOST) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(NOW - datetime.timedelta(days=30))
        .not_valid_after(ends)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM)


def naming(*names: str) -> Resource:
    return evil(tls=[{"hosts": [HOST], "secretName": name} for name in names or ("bad",)])


def case(number: int, name: str, crt: bytes, key: bytes, *, rejected: bool, more: tuple[Resource, ...] = (),
         warnings: tuple[str, ...] = ()) -> Case:  # fmt: skip
    return Case(
        number=number,
        name=name,
        objects=(naming(), tls_secret("bad", crt, key), *more),
        rejected=(SECRET,) if rejected else (),
        warnings=("CertificateRejected",) if rejected else warnings,
    )


def parameters() -> bytes:
    return b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"


def chain_of(count: int) -> bytes:
    return b"".join(certificate(ec_key(), host=f"ca{number}.test") for number in range(count))


GOOD = certificate(ec_key()), pem_of(ec_key())
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())
TRADITIONAL = PrivateFormat.TraditionalOpenSSL
WRONG = {
    "key of another certificate": (GOOD[0], pem_of(OTHER_KEY)),
    "key of another kind": (GOOD[0], pem_of(rsa_key())),
    "no certificate": (b"", GOOD[1]),
    "no key": (GOOD[0], b""),
    "authority in front": (certificate(OTHER_KEY, host="ca.test") + GOOD[0], GOOD[1]),
    "text": (b"hello", b"world"),
    "bytes": (b"\xff\xfe\0\x01", GOOD[1]),
    "cut off": (GOOD[0][:200], GOOD[1]),
    "cut off before its end": (GOOD[0].replace(b"-----END CERTIFICATE-----", b""), GOOD[1]),
    "bits in disorder": (GOOD[0].replace(b"MII", b"AII", 1), GOOD[1]),
    "other Base64": (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", GOOD[1]),
    "other Base64 for a key": (GOOD[0], b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
    "line of a crt-list": (GOOD[0] + b"\n/etc/ssl/injected.pem [alpn h2] *\n-----BEGIN X", GOOD[1]),
    "encrypted key": (GOOD[0], b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"),
    "short key": (certificate(rsa_key(1024)), pem_of(rsa_key(1024))),
}
SERVED = {
    # The order of blocks means nothing to HAProxy.
    "key and certificate in each other's place": (GOOD[1], GOOD[0]),
    "expired": (certificate(ec_key(), ends=NOW - datetime.timedelta(days=1)), GOOD[1]),
    "EC with parameters": (GOOD[0], parameters() + pem_of(ec_key(), TRADITIONAL)),
    "PKCS#1": (certificate(rsa_key()), pem_of(rsa_key(), TRADITIONAL)),
    "PKCS#8": (certificate(rsa_key()), pem_of(rsa_key())),
    "SEC1": (GOOD[0], pem_of(ec_key(), TRADITIONAL)),
    "CRLF, a BOM and text between blocks": (
        b"\xef\xbb\xbfsubject=x\r\n" + GOOD[0].replace(b"\n", b"\r\n") + b"more\r\n",
        GOOD[1],
    ),
    "long chain": (GOOD[0] + chain_of(50), GOOD[1]),
}
SECOND = certificate(OTHER_KEY), pem_of(OTHER_KEY)
CASES = list(
    chain(
        (case(12, name, *pair, rejected=True) for name, pair in WRONG.items()),
        (case(12, name, *pair, rejected=False) for name, pair in SERVED.items()),
        (
            case(
                12,
                "two Secrets for a host",
                *SECOND,
                rejected=False,
                more=(naming("bad", "older"), tls_secret("older", *GOOD, age=1)),
                warnings=("CertificateConflict",),
            ),
        ),
    )
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_it_is_rejected_or_served(world: World, case: Case) -> None:
    younger = {"creationTimestamp": "2026-01-09T00:00:00Z"}
    objects = tuple(
        {**one, "metadata": {**one["metadata"], **younger}} if one["metadata"]["name"] == "bad" else one
        for one in case.objects
    )
    outcome = await world.check(msgspec.structs.replace(case, objects=objects))
    if not case.rejected:
        assert "frontend https" in outcome.text


async def test_13_garbage_at_a_cold_start_leaves_other_objects_served(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    # More than HAProxy reports in the rounds of one cycle, of kinds that only HAProxy detects.
    pairs = list(WRONG.values())
    bad = [tls_secret(f"bad{number}", *pairs[number % len(pairs)]) for number in range(300)]
    objects = [
        *bad,
        *(naming_as(f"evil{number}", f"bad{number}") for number in range(300)),
        naming_as("fine", "fine"),
        tls_secret("fine", *GOOD),
    ]

    def start() -> None:
        from contextlib import ExitStack  # noqa: PLC0415

        with ExitStack() as stack:
            world = World(tmp_path_factory.mktemp("cold"), stack, *objects)
            assert len(world.baseline.held) == 300
            with world.serving(world.baseline):
                world.check_good()
                assert names_of(world.ports["https"], "fine.example.com") == {HOST}

    with trio.fail_after(60):
        await trio.to_thread.run_sync(start)


def naming_as(name: str, secret: str) -> Resource:
    host = f"{name}.example.com"
    return evil(name=name, host=host, tls=[{"secretName": secret, "hosts": [host]}])


@pytest.mark.soak
async def test_12_a_bundle_of_8_mb_and_15_5000_certificates_are_served(world: World) -> None:
    issued = [AUTHORITY.issue_cert(f"h{number}.example.com", key_type=trustme.KeyType.ECDSA) for number in range(5_000)]
    many = [
        tls_secret(f"many{number}", one.cert_chain_pems[0].bytes(), one.private_key_pem.bytes())
        for number, one in enumerate(issued)
    ]
    bundle = GOOD[0] + chain_of(1) * (8_000_000 // len(chain_of(1)))
    assert len(base64.b64encode(bundle)) > 8_000_000
    naming_all = [naming_as(f"many{number}", f"many{number}") for number in range(5_000)]
    with world.beside(*many, *naming_all, naming(), tls_secret("bad", bundle, GOOD[1])):
        outcome = await world.cycle()
        assert outcome.held == {}
        with world.serving(outcome):
            world.check_good()
            assert names_of(world.ports["https"], "many4999.example.com") == {"h4999.example.com"}
