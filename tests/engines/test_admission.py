"""Keys are made where they are used: invitations, requests and admissions, and what is refused among them."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from nvflare.lighter.utils import x509_name
from typer.testing import CliRunner

from unpooled.cli.app import app
from unpooled.engines.nvflare import admission as rules
from unpooled.engines.nvflare.admission import KIT, Admission, Invitation, Request, accept, read_file, request
from unpooled.engines.nvflare.certificates import check_kit
from unpooled.engines.nvflare.consortium import Consortium
from unpooled.engines.nvflare.engine import members
from unpooled.engines.nvflare.kits import Kits, admit, admitted_sites, create, sites_path
from unpooled.errors import EngineError, ResultsError
from unpooled.site.fingerprint import fingerprint
from unpooled.site.folder import SiteFolder
from unpooled.site.identity import public_identity
from unpooled.site.known_sites import read_sites
from unpooled.study import Source

runner = CliRunner()


@pytest.fixture
def kits(tmp_path: Path) -> Kits:
    return create(Consortium(name="lungs", sites={"north": {}, "south": {}}), tmp_path / "consortium")  # type: ignore[arg-type]


@dataclass
class Joined:
    own: SiteFolder
    path: Path

    @property
    def request(self) -> Request:
        return read_file(self.path, Request)


def join(kits: Kits, folder: Path, name: str = "north") -> Joined:
    own = SiteFolder.create(folder, name, Source(path="patients.csv"))
    return Joined(own, request(read_file(kits.invitations[name], Invitation), own))


def admission_of(kits: Kits, joined: Joined, **more: Any) -> Admission:
    return read_file(admit(kits.coordinator, joined.request, **more).path, Admission)


def changed(asked: Request, **parts: Any) -> Request:
    return asked.model_copy(update=parts)


def private(folder: Path) -> list[bytes]:
    """Private keys below a folder: as lines of a file, raw and in hexadecimal."""
    found: list[bytes] = []
    for path in folder.rglob("*.key"):
        content = path.read_bytes()
        if b"BEGIN" in content:
            key = load_pem_private_key(content, password=None)
            assert isinstance(key, rsa.RSAPrivateKey)
            numbers = key.private_numbers()
            secrets = [number.to_bytes(256).lstrip(b"\0") for number in (numbers.d, numbers.p, numbers.q)]
            found += [*(line for line in content.split(b"\n") if len(line) == 64), *secrets]
        else:
            secrets = [content]
            found.append(content)
        found += [secret.hex().encode() for secret in secrets]
    return found


# --- from an invitation to a kit


def test_a_site_that_was_admitted_has_a_kit_in_order_and_is_on_the_list(kits: Kits, tmp_path: Path) -> None:
    north, south = join(kits, tmp_path / "north"), join(kits, tmp_path / "south", "south")
    for joined in (south, north):
        accept(admission_of(kits, joined), joined.own)
        check_kit(joined.own.folder / KIT)
    assert list(read_sites(sites_path(kits.coordinator))) == ["north", "south"]
    assert admitted_sites(kits.coordinator)["north"] == public_identity(north.own.identity)
    for one in north.own.folder.rglob("*"):
        assert one.stat().st_mode & 0o777 == (0o700 if one.is_dir() else 0o600)


def test_no_private_key_leaves_the_machine_on_which_it_was_made(kits: Kits, tmp_path: Path) -> None:
    north = join(kits, tmp_path / "north")
    accept(admission_of(kits, north), north.own)
    held = {
        one.relative_to(kits.coordinator.parent): one.read_bytes()
        for one in kits.coordinator.parent.rglob("*")
        if one.is_file()
    }
    own = [name for name, content in held.items() if b"PRIVATE KEY" in content]
    assert {name.parts[0] for name in own} == {"coordinator"} and len(own) == 3
    secrets = private(north.own.folder)
    assert len(secrets) >= 6
    sent = [north.path, *kits.invitations.values(), *(kits.coordinator.parent / "admissions").iterdir()]
    assert not any(b"PRIVATE" in path.read_bytes() for path in sent)
    for content in (*held.values(), *(path.read_bytes() for path in sent)):
        assert not any(secret in content for secret in secrets)
    theirs = private(kits.coordinator)
    assert not any(
        s in one.read_bytes() for s in theirs for one in north.own.folder.rglob("*") if one.is_file()
    )


def test_a_certificate_ends_with_its_root_and_can_sign_no_other(kits: Kits, tmp_path: Path) -> None:
    made = x509.load_pem_x509_certificate(
        admission_of(kits, join(kits, tmp_path / "north")).certificate.encode()
    )
    invitation = read_file(kits.invitations["north"], Invitation)
    root = x509.load_pem_x509_certificate(invitation.root.encode())
    assert made.not_valid_after_utc == root.not_valid_after_utc
    assert made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert made.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign is False
    assert [one.rfc4514_attribute_name for one in made.subject] == ["CN", "O"], "no role"


# --- requests that are refused


def csr(name: str, key: Any) -> x509.CertificateSigningRequest:
    return x509.CertificateSigningRequestBuilder().subject_name(x509_name(name, name)).sign(key, SHA256())


def signed(kits: Kits, asked: x509.CertificateSigningRequest, name: str = "north") -> Request:
    """A request that is in order but for its signing request."""
    key, invitation = Ed25519PrivateKey.generate(), read_file(kits.invitations[name], Invitation)
    return Request(
        kind="request",
        name=name,
        identity=key.public_key().public_bytes_raw().hex(),
        invitation=invitation.digest.hex(),
        csr=asked.public_bytes(Encoding.PEM).decode(),
        signature=key.sign(rules._statement(invitation.digest, asked)).hex(),
    )


RSA = rsa.generate_private_key(65537, 2048)


def test_a_request_that_was_tampered_with_is_refused(kits: Kits, tmp_path: Path) -> None:
    good = join(kits, tmp_path / "north").request
    other = csr("north", RSA).public_bytes(Encoding.PEM).decode()
    body = bytearray(x509.load_pem_x509_csr(good.csr.encode()).public_bytes(Encoding.DER))
    body[-1] ^= 1
    broken = x509.load_der_x509_csr(bytes(body))
    cases = {
        "a signature of another identity": changed(good, csr=other),
        "a damaged request": changed(good, csr="-----BEGIN"),
        "a signing request that its own key has not signed": signed(kits, broken),
        "a signing request with another name": signed(kits, csr("south", RSA)),
        "a key of another kind": signed(kits, csr("north", ec.generate_private_key(ec.SECP256R1()))),
    }
    swapped = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    more = [changed(good, identity=swapped), changed(good, signature="00" * 64)]
    for found, asked in [*cases.items(), *(("a signature of another identity", one) for one in more)]:
        with pytest.raises(EngineError, match=found):
            admit(kits.coordinator, asked)
    assert not sites_path(kits.coordinator).exists()
    assert not (kits.coordinator.parent / "admissions").exists()
    admit(kits.coordinator, good)


def test_a_request_in_the_name_of_another_site_is_refused(kits: Kits, tmp_path: Path) -> None:
    good = join(kits, tmp_path / "north").request
    with pytest.raises(EngineError, match="one from 'west'; its sites are north, south"):
        admit(kits.coordinator, changed(good, name="west"))
    with pytest.raises(EngineError, match="for another invitation"):
        admit(kits.coordinator, changed(good, name="south"))


def test_an_invitation_that_was_exchanged_on_the_way_is_noticed(kits: Kits, tmp_path: Path) -> None:
    """Another root or another address would lead the site to another coordinator."""
    other = create(Consortium(name="lungs", sites={"north": {}}), tmp_path / "other")  # type: ignore[arg-type]
    root = read_file(other.invitations["north"], Invitation).root
    content = json.loads(kits.invitations["north"].read_text())
    forged = {
        "root": {**content, "root": root},
        "host": {**content, "site": {**content["site"], "host": "evil.example.org"}},
    }
    for name, text in forged.items():
        own = SiteFolder.create(tmp_path / name, "north", Source(path="patients.csv"))
        asked = read_file(request(Invitation.model_validate(text), own), Request)
        with pytest.raises(EngineError, match="for another invitation"):
            admit(kits.coordinator, asked)
        genuine = read_file(kits.invitations["north"], Invitation).digest.hex()
        with pytest.raises(EngineError, match="a signature of another identity"):
            admit(kits.coordinator, changed(asked, invitation=genuine))


def test_a_second_different_request_needs_to_be_wanted(kits: Kits, tmp_path: Path) -> None:
    first, second = join(kits, tmp_path / "a"), join(kits, tmp_path / "b")
    for _ in range(2):
        admit(kits.coordinator, first.request)
    with pytest.raises(EngineError, match="a second, different request") as raised:
        admit(kits.coordinator, second.request)
    assert "--replace" in str(raised.value)
    assert admitted_sites(kits.coordinator)["north"] == public_identity(first.own.identity)
    admit(kits.coordinator, second.request, replace=True)
    assert admitted_sites(kits.coordinator) == {"north": public_identity(second.own.identity)}


def test_another_key_under_the_same_identity_is_a_different_request_too(kits: Kits, tmp_path: Path) -> None:
    joined = join(kits, tmp_path / "a")
    admit(kits.coordinator, joined.request)
    request(read_file(kits.invitations["north"], Invitation), joined.own)
    with pytest.raises(EngineError, match="a second, different request"):
        admit(kits.coordinator, joined.request)


def test_two_sites_cannot_have_one_identity(kits: Kits, tmp_path: Path) -> None:
    north, south = join(kits, tmp_path / "north"), join(kits, tmp_path / "south", "south")
    admit(kits.coordinator, north.request)
    south.own.identity.write_bytes(north.own.identity.read_bytes())
    request(read_file(kits.invitations["south"], Invitation), south.own)
    with pytest.raises(EngineError, match="the identity of another site"):
        admit(kits.coordinator, south.request)
    assert list(admitted_sites(kits.coordinator)) == ["north"]


# --- admissions that are refused


def test_an_admission_that_is_not_for_this_site_is_not_kept(kits: Kits, tmp_path: Path) -> None:
    north, south = join(kits, tmp_path / "north"), join(kits, tmp_path / "south", "south")
    certificate = north.own.folder / KIT / rules.CERTIFICATE
    theirs = admission_of(kits, south)
    with pytest.raises(ResultsError, match="one for another site"):
        accept(theirs, north.own)
    with pytest.raises(ResultsError, match="one for another site"):
        accept(theirs.model_copy(update={"name": "north"}), north.own)
    elsewhere = admission_of(kits, join(kits, tmp_path / "elsewhere"))
    with pytest.raises(EngineError, match="the key of another certificate"):
        accept(elsewhere, north.own)
    other = create(Consortium(name="lungs", sites={"north": {}}), tmp_path / "other")  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="issued by another authority"):
        accept(admission_of(other, join(other, tmp_path / "again")), north.own)
    with pytest.raises(EngineError, match="must be a certificate"):
        accept(theirs.model_copy(update={"certificate": "none"}), north.own)
    assert not certificate.exists()


# --- files of another kind, and of earlier versions


def test_a_file_of_another_kind_is_named(kits: Kits, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no request, or a damaged one"):
        read_file(kits.invitations["north"], Request)
    with pytest.raises(ResultsError, match="no admission"):
        read_file(tmp_path / "none.json", Admission)


def run(*words: object) -> Any:
    return runner.invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


def test_an_old_kit_is_refused_with_what_to_do(tmp_path: Path) -> None:
    kit = tmp_path / "north.zip"
    with zipfile.ZipFile(kit, "w") as archive:
        archive.writestr("startup/client.key", "secret")
    (tmp_path / "patients.csv").write_text("a\n1\n")
    told = run("site", "join", kit, "--data", tmp_path / "patients.csv", "--folder", tmp_path / "north")
    assert told.exit_code == 7 and "of an earlier version" in told.output
    assert "unpooled coordinator create consortium.toml" in told.output and "secret" not in told.output
    assert not (tmp_path / "north").exists()


def test_an_old_consortium_and_an_old_site_are_refused_with_what_to_do(kits: Kits, tmp_path: Path) -> None:
    joined = join(kits, tmp_path / "north")
    told = run("site", "start", "--folder", joined.own.folder)
    assert told.exit_code == 7 and f"send {joined.path} to the coordinator" in told.output
    joined.own.identity.unlink()
    told = run("site", "start", "--folder", joined.own.folder)
    assert told.exit_code == 7 and "join again with a new invitation" in told.output
    (kits.coordinator / "authority").rename(tmp_path / "gone")
    with pytest.raises(ResultsError, match="the coordinator made all keys"):
        members(kits.coordinator)
    for words in (("start",), ("status",), ("admit", joined.path)):
        told = run("coordinator", *words, "--coordinator", kits.coordinator)
        assert told.exit_code == 7 and "coordinator create consortium.toml" in told.output


# --- the commands


def test_the_commands_say_what_to_send_and_the_same_words_at_both_ends(tmp_path: Path) -> None:
    (tmp_path / "consortium.toml").write_text('name = "lungs"\n[sites.north]\n[sites.south]\n')
    (tmp_path / "patients.csv").write_text("a\n1\n")
    folder = tmp_path / "consortium"
    told = run("coordinator", "create", tmp_path / "consortium.toml", "--output", folder).output
    assert f"{folder}/invitations/north.json  send to 'north'; it is no secret" in told
    own = tmp_path / "north"
    words = ("--data", tmp_path / "patients.csv", "--folder", own)
    told = run("site", "join", folder / "invitations" / "north.json", *words).output
    assert f"{own}/north.request.json  send to the coordinator" in told
    assert f"fingerprint of 'north': {fingerprint(public_identity(own / 'identity.key'))}" in told
    assert (
        "already a site's folder" in run("site", "join", folder / "invitations" / "north.json", *words).output
    )
    done = run("coordinator", "admit", own / "north.request.json", "--coordinator", folder / "coordinator")
    assert done.exit_code == 0, done.output
    assert f"fingerprint of 'north': {fingerprint(public_identity(own / 'identity.key'))}" in done.output
    assert "without south" in done.output
    assert f"{folder}/admissions/north.admission.json  send to 'north'" in done.output
