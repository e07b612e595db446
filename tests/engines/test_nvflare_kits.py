"""Kits, certificates and processes of NVIDIA FLARE: real keys, real handshakes, a real server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

pytest.importorskip("nvflare")

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from engines.stage import kit_of
from unpooled.engines.nvflare import processes
from unpooled.engines.nvflare.certificates import check_connection, check_kit
from unpooled.engines.nvflare.configuration import (
    EXECUTOR,
    HEARTBEAT_TIMEOUT,
    RELAY,
    SECOND,
    STORAGE,
    configure_server,
    configure_site,
    write_job,
)
from unpooled.engines.nvflare.consortium import LEAD, Consortium, Identity, read_consortium, read_identity
from unpooled.engines.nvflare.kits import Kits, create
from unpooled.engines.nvflare.processes import Party, start_server, start_site, wait_until_listening
from unpooled.errors import EngineError, ResultsError, StudyError

DAY = timedelta(days=1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Kits:
    consortium = Consortium(
        name="lungs", days=30, coordinator={"port": free_port()}, sites={"north": {}, "south-2": {}}
    )
    return create(consortium, tmp_path_factory.mktemp("lungs") / "made")


@pytest.fixture
def north(kits: Kits, tmp_path: Path) -> Path:
    return kit_of(kits, "north", tmp_path / "north")


# --- the consortium file


def test_a_file_with_little_in_it_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "consortium.toml"
    path.write_text('name = "lungs"\n[sites.north-1]\n[sites.south]\norganisation = "clinic"\n')
    consortium = read_consortium(path)
    assert (consortium.coordinator.host, consortium.coordinator.port, consortium.days) == (
        "localhost",
        8102,
        360,
    )
    assert {name: site.organisation for name, site in consortium.sites.items()} == {
        "north-1": "north_1",
        "south": "clinic",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('nam = "x"\n[sites.a]', "did you mean 'name'?"),
        ('name = "x"\n[coordinator]\nhots = "y"\n[sites.a]', "did you mean 'host'?"),
        ('name = "x"\n[sites.a]\norganization = "y"', "did you mean 'organisation'?"),
        ('name = "x"', "no 'sites'"),
        ('name = "x"\n[sites]', "no 'sites'"),
        ('name = "x"\n[sites."a b"]', "letters, digits"),
        ('name = "x"\n[sites."../a"]', "letters, digits"),
        ('name = "x"\n[sites.nan]', "not a word for a number"),
        ('name = "x"\n[sites.server]', "a reserved name"),
        ('name = "x"\n[sites.a]\n[sites.A]', "capital letters"),
        ('name = "x"\ncoordinator = { host = "a" }\n[sites.a]', "both called 'a'"),
        ('name = "x"\ncoordinator = { host = "a/b" }\n[sites.s]', "a host must be a name"),
        ('name = "x"\ndays = 361\n[sites.a]', "less than or equal to 360"),
        ('name = "{$HOME}"\n[sites.a]', "a consortium's name"),
        ('name = "x\n[sites.a]', "line 1"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "consortium.toml"
    path.write_text(text)
    with pytest.raises(StudyError, match=said.replace("?", r"\?")):
        read_consortium(path)


def test_no_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no such file"):
        read_consortium(tmp_path / "none.toml")
    with pytest.raises(StudyError, match="cannot be read"):
        read_consortium(tmp_path)


# --- kits


def test_everything_is_private_and_nothing_is_there_that_nobody_needs(kits: Kits) -> None:
    folder = kits.coordinator.parent
    everything = [folder, *folder.rglob("*")]
    modes = {one: one.stat().st_mode & 0o777 for one in everything}
    assert all(modes[one] == (0o700 if one.is_dir() else 0o600) for one in everything)
    files = {one.relative_to(folder).as_posix() for one in everything if one.is_file()}
    assert not [name for name in files if name.endswith((".sh", ".ipynb", ".default", ".sample"))]
    assert {"invitations/north.json", "invitations/south-2.json", "coordinator/consortium.json"} <= files
    assert [name for name in files if "rootCA.key" in name] == ["coordinator/authority/rootCA.key"]


def test_a_sites_kit_holds_its_name_and_keys_and_no_configuration(north: Path) -> None:
    files = {"identity.json", "startup/client.crt", "startup/client.key", "startup/rootCA.pem"}
    assert {one.relative_to(north).as_posix() for one in north.rglob("*") if one.is_file()} == files
    assert read_identity(north).name == "north"
    for one in [north, *north.rglob("*")]:
        assert one.stat().st_mode & 0o777 == (0o700 if one.is_dir() else 0o600)


def test_certificates_last_as_long_as_was_asked(kits: Kits, north: Path) -> None:
    for kit, kind in ((kits.server, "server"), (kits.lead, "client"), (north, "client")):
        for name in (f"{kind}.crt", "rootCA.pem"):
            certificate = x509.load_pem_x509_certificate((kit / "startup" / name).read_bytes())
            assert abs(certificate.not_valid_after_utc - datetime.now(UTC) - 30 * DAY) < DAY


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    consortium = Consortium(name="lungs", sites={"north": {}})
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(ResultsError, match="files in"):
        create(consortium, tmp_path)
    with pytest.raises(ResultsError, match="a file of that name"):
        create(consortium, tmp_path / "mine.txt")


# --- the configuration of NVIDIA FLARE


def local(kit: Path, name: str) -> dict:
    return json.loads((kit / "local" / name).read_text())


def test_only_our_classes_no_code_and_no_logs(kits: Kits, north: Path) -> None:
    configure_server(kits.server, read_identity(kits.server))
    configure_site(north, read_identity(north))
    for kit, allowed in ((kits.server, RELAY), (north, EXECUTOR)):
        resources = local(kit, "resources.json")
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert resources["class_allow_list"] == [allowed]
        permissions = local(kit, "authorization.json")["permissions"]
        assert set(permissions) == {"lead", "project_admin", "org_admin", "member"}
        for rights in permissions.values():
            assert rights["byoc"] == rights["shell_commands"] == rights["operate"] == "none"
        assert local(kit, "log_config.json")["loggers"]["root"]["level"] == "WARNING"
    site, server = local(north, "resources.json"), local(kits.server, "resources.json")
    assert site["allow_log_streaming"] is False
    assert "log" not in " ".join(one["id"] for one in [*site["components"], *server["components"]])
    assert "/tmp" not in json.dumps(server) and "{$" + STORAGE + "}/jobs" in json.dumps(server)
    for kit, name in ((kits.server, "fed_server.json"), (north, "fed_client.json")):
        started = json.loads((kit / "startup" / name).read_text())
        assert started["require_signed_jobs"] is True and '"mtls"' in json.dumps(started)


def test_a_sites_configuration_is_its_own_whatever_lay_there(north: Path) -> None:
    (north / "local").mkdir()
    (north / "local" / "resources.json").write_text('{"components": [{"path": "subprocess.Popen"}]}')
    configure_site(north, read_identity(north))
    assert "subprocess" not in json.dumps(local(north, "resources.json"))


def test_the_only_job_a_site_takes_is_study_job(tmp_path: Path) -> None:
    from unpooled.engines.nvflare.executor import StudyJobValidator, is_study_job

    app = write_job(tmp_path, "study", ("north",), "/somewhere") / "site"
    config = app / "config" / "config_fed_client.json"
    ours = json.loads(config.read_text())
    (app / "config" / ".__nvfl_sig.json").write_text("{}")
    assert is_study_job(app) and StudyJobValidator().validate(str(app)) == ("", {})

    def becomes(content: dict) -> bool:
        config.write_text(json.dumps(content))
        return is_study_job(app)

    other = {"path": "subprocess.Popen", "args": {}}
    assert not becomes({**ours, "executors": [{"tasks": ["*"], "executor": other}]})
    speaking = {"path": EXECUTOR, "args": {"label": "{$PGPASSWORD}"}}
    assert not becomes({**ours, "executors": [{"tasks": ["*"], "executor": speaking}]})
    assert not becomes({**ours, "components": [{"id": "x", **other}]})
    assert not becomes({**ours, "task_result_filters": [{"tasks": ["*"], "filters": [other]}]})
    assert not becomes({**ours, "server": {"x": "{$PGPASSWORD}"}})
    assert not becomes({})
    config.write_text("[]")
    assert not is_study_job(app)
    assert becomes(ours)
    (app / "config" / "config_fed_client.yml").write_text("executors: []")
    assert not is_study_job(app)
    (app / "config" / "config_fed_client.yml").unlink()
    (app / "custom").mkdir()
    assert is_study_job(app)
    (app / "custom" / "mine.py").write_text("")
    assert StudyJobValidator().validate(str(app))[0]
    shutil.rmtree(app / "custom")
    (app / "custom").symlink_to(tmp_path)
    assert not is_study_job(app)


def test_a_site_answers_no_request_but_those_of_a_study() -> None:
    told = subprocess.run(
        [sys.executable, "-c", RESTRICTED], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    requests, commands, context = json.loads(told)
    assert "DeployProcessor" in requests and "StartJobProcessor" in requests
    assert not {"ShellCommandProcessor", "ReportEnvProcessor", "ConfigureSiteLogProcessor"} & set(requests)
    assert not {"ShowErrorsCommand", "ConfigureJobLogCommand", "ShowStatsCommand"} & set(commands)
    assert context == "own_authority_only"


RESTRICTED = """
import json
from nvflare.fuel.f3.drivers import net_utils
from nvflare.private.fed.client.admin_commands import AdminCommands
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from unpooled.engines.nvflare.executor import RestrictedClient
RestrictedClient()
left = [[type(getattr(one, "request", one)).__name__ for one in group]
        for group in (ClientRequestProcessors.request_processors, AdminCommands.commands)]
print(json.dumps([*left, net_utils.get_ssl_context.__name__]))
"""


# --- certificates


class Authority:
    """A certificate authority of our own, which issues whatever a test needs."""

    def __init__(self, name: str = "other") -> None:
        self.name, self.key = name, ec.generate_private_key(ec.SECP256R1())
        self.root = self._sign(name, self.key, (-DAY, DAY), is_root=True)

    def _sign(
        self, name: str, key: ec.EllipticCurvePrivateKey, valid: tuple[timedelta, timedelta], *, is_root: bool
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + valid[0])
            .not_valid_after(now + valid[1])
            .add_extension(x509.BasicConstraints(ca=is_root, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )

    def kit(
        self,
        folder: Path,
        name: str = "north",
        valid: tuple[timedelta, timedelta] = (-DAY, DAY),
        kind: str = "client",
    ) -> Path:
        key = ec.generate_private_key(ec.SECP256R1())
        startup = folder / "startup"
        startup.mkdir(parents=True)
        identity = Identity(consortium="lungs", name=name, organisation="north", host="localhost", port=8102)
        (folder / "identity.json").write_text(identity.model_dump_json())
        certificate = self._sign(name, key, valid, is_root=False)
        (startup / f"{kind}.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
        (startup / "rootCA.pem").write_bytes(self.root.public_bytes(Encoding.PEM))
        (startup / f"{kind}.key").write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        )
        return folder


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def test_new_kits_are_in_order(kits: Kits, north: Path) -> None:
    for kit in (kits.server, kits.lead, north):
        check_kit(kit)


def test_each_fault_of_a_certificate_is_named(kits: Kits, north: Path, tmp_path: Path) -> None:
    authority = Authority()
    yesterday = datetime.now(UTC) - DAY
    with pytest.raises(EngineError, match=f"expired on {yesterday:%Y-%m-%d}"):
        check_kit(authority.kit(tmp_path / "expired", valid=(-2 * DAY, -DAY)))
    with pytest.raises(EngineError, match="valid from"):
        check_kit(authority.kit(tmp_path / "early", valid=(DAY, 2 * DAY)))
    mixed = authority.kit(tmp_path / "mixed")
    shutil.copy(north / "startup" / "client.key", mixed / "startup" / "client.key")
    with pytest.raises(EngineError, match="the key of another certificate"):
        check_kit(mixed)
    for name in ("client.crt", "client.key"):
        shutil.copy(north / "startup" / name, mixed / "startup" / name)
    with pytest.raises(EngineError, match="issued by another authority"):
        check_kit(mixed)
    (mixed / "startup" / "client.crt").write_text("-----BEGIN CERTIFICATE-----\nnone")
    with pytest.raises(EngineError, match="a readable certificate"):
        check_kit(mixed)
    (north / "startup" / "client.key").unlink()
    with pytest.raises(EngineError, match="must hold a readable key"):
        check_kit(north)


@contextmanager
def listening(kit: Path, accepted: Path) -> Iterator[int]:
    """A server with a kit's certificate, which accepts those of the root in `accepted`, as NVFlare's does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(accepted)
    context.load_cert_chain(kit / "startup" / "server.crt", kit / "startup" / "server.key")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    plain, _ = server.accept()
                except OSError:
                    return
                try:
                    with context.wrap_socket(plain, server_side=True) as line:
                        line.recv(100)
                        line.sendall(b"HTTP/1.1 404 Not Found\r\n\r\n")
                except OSError:
                    plain.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_each_failure_to_reach_the_coordinator_is_named(tmp_path: Path) -> None:
    ours, theirs = Authority("ours"), Authority("theirs")
    site = ours.kit(tmp_path / "site")
    root, foreign = site / "startup" / "rootCA.pem", tmp_path / "theirs.pem"
    foreign.write_bytes(theirs.root.public_bytes(Encoding.PEM))

    def server(
        name: str, authority: Authority, *, subject: str = "localhost", valid: tuple = (-DAY, DAY)
    ) -> Path:
        return authority.kit(tmp_path / name, subject, valid, kind="server")

    good = server("good", ours)
    with listening(good, root) as port:
        check_connection(site, "localhost", port)
    cases = [
        (good, foreign, "rejects our certificate"),
        (server("foreign", theirs), root, "a certificate of another authority"),
        (server("old", ours, valid=(-2 * DAY, -DAY)), root, "the coordinator's certificate has expired"),
        (server("early", ours, valid=(DAY, 2 * DAY)), root, "not valid yet"),
        (server("member", ours, subject="south"), root, "another party of the consortium"),
    ]
    for kit, accepted, said in cases:
        with listening(kit, accepted) as port, pytest.raises(EngineError, match=said):
            check_connection(site, "localhost", port)
    with pytest.raises(EngineError, match="the connection was refused"):
        check_connection(site, "localhost", free_port())
    with pytest.raises(EngineError, match=r"no machine called 'nowhere\.invalid' is known"):
        check_connection(site, "nowhere.invalid", 8102)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(EngineError, match="no answer within"),
    ):
        check_connection(site, "localhost", silent.getsockname()[1], timeout=0.2)


def test_a_site_trusts_no_authority_but_its_own_though_the_machine_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nvflare.fuel.f3.drivers import net_utils

    from unpooled.engines.nvflare.executor import own_authority_only

    ours, public = Authority("ours"), Authority("public")
    site = ours.kit(tmp_path / "site")
    startup = site / "startup"
    trusted = tmp_path / "machine.pem"
    trusted.write_bytes(public.root.public_bytes(Encoding.PEM))
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    params = {
        "scheme": "https",
        "ca_cert": str(startup / "rootCA.pem"),
        "client_cert": str(startup / "client.crt"),
        "client_key": str(startup / "client.key"),
    }

    def shakes_hands(context: ssl.SSLContext | None, port: int) -> bool:
        assert context is not None
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as plain, context.wrap_socket(plain):
                return True
        except ssl.SSLCertVerificationError:
            return False

    trap = public.kit(tmp_path / "trap", "anybody.example.org", kind="server")
    coordinator = ours.kit(tmp_path / "coordinator", "localhost", kind="server")
    with listening(trap, startup / "rootCA.pem") as port:
        assert shakes_hands(net_utils.get_ssl_context(dict(params), False), port)
        assert not shakes_hands(own_authority_only(dict(params), False), port)
    with listening(coordinator, startup / "rootCA.pem") as port:
        assert shakes_hands(own_authority_only(dict(params), False), port)


# --- processes


def still_running(processes: list[psutil.Process]) -> list[psutil.Process]:
    left = []
    for one in processes:
        try:
            if one.status() != psutil.STATUS_ZOMBIE:
                left.append(one)
        except psutil.NoSuchProcess:
            pass
    return left


def family(party: Party) -> list[psutil.Process]:
    head = psutil.Process(party.process.pid)
    return [head, *head.children(recursive=True)]


def test_what_cannot_be_started_is_said_before(kits: Kits, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no kit"):
        start_site(tmp_path)
    with pytest.raises(EngineError, match="a path without spaces"):
        start_site(kit_of(kits, "north", tmp_path / "my site"))
    taken = socket.create_server(("127.0.0.1", read_identity(kits.server).port))
    with taken, pytest.raises(EngineError, match="must be able to listen"):
        start_server(kits.server)


@pytest.mark.slow
def test_a_server_greets_its_own_and_ends_without_a_trace(kits: Kits, north: Path, tmp_path: Path) -> None:
    port = read_identity(kits.server).port
    stranger = create(
        Consortium(name="lungs", coordinator={"port": port}, sites={"north": {}}), tmp_path / "other"
    )
    server = start_server(kits.server)
    parties = [server]
    try:
        wait_until_listening("localhost", port, server)
        check_connection(north, "localhost", port)
        with pytest.raises(EngineError, match="another authority"):
            check_connection(kit_of(stranger, "north", tmp_path / "stranger"), "localhost", port)
        with pytest.raises(EngineError, match="must be able to listen"):
            start_server(kits.server)
        sites = [north, kit_of(kits, "south-2", tmp_path / "south")]
        parties += [start_site(folder) for folder in sites]
        with pytest.raises(EngineError, match="another process that runs"):
            start_site(north)
        assert connected(kits) == {"north", "south-2"}
        assert all(speaks_tls(port) for party in parties for port in ports(party))
        everybody = [one for party in parties for one in family(party)]
    finally:
        for party in parties:
            party.stop()
    assert not any(party.alive for party in parties)
    assert not still_running(everybody)
    with pytest.raises(EngineError, match="it ended with code"):
        wait_until_listening("localhost", port, server, 1)
    for one in [kits.server, *kits.server.rglob("*")]:
        assert not one.stat().st_mode & 0o077


@pytest.mark.slow
def test_a_second_process_of_a_site_is_refused_and_named_to_both(tmp_path: Path) -> None:
    consortium = Consortium(name="lungs", coordinator={"port": free_port()}, sites={"north": {}, "south": {}})
    kits = create(consortium, tmp_path / "made")
    folders = [kit_of(kits, name, tmp_path / name) for name in ("north", "south")]
    shutil.copytree(folders[0], tmp_path / "thief" / "kit")
    server = start_server(kits.server)
    parties = [server]
    try:
        wait_until_listening("localhost", consortium.coordinator.port, server)
        parties += [start_site(folder) for folder in folders]
        assert connected(kits) == {"north", "south"}
        parties.append(start_site(tmp_path / "thief" / "kit"))
        until = time.monotonic() + 60
        while not parties[-1].refused and time.monotonic() < until:
            time.sleep(0.2)
        assert parties[-1].refused and not any(party.refused for party in parties[:-1])
        assert (kits.server / SECOND).read_text().split()[-1] == "north"
        parties[-1].stop()
        time.sleep(HEARTBEAT_TIMEOUT + 5)
        with visit(kits) as session:
            assert set(beating(session)) == {"north", "south"}, "the first one stays"
        parties[1].stop()  # a site that has ended may start again elsewhere
        parties.append(start_site(tmp_path / "thief" / "kit"))
        time.sleep(HEARTBEAT_TIMEOUT + 5)
        with visit(kits) as session:
            assert set(beating(session)) == {"north", "south"}
        assert not parties[-1].refused
    finally:
        for party in parties:
            party.stop()


def beating(session: Session) -> list[str]:
    clients = session.get_system_info().client_info
    return [one.name for one in clients if time.time() - one.last_connect_time < 6]


@contextmanager
def visit(kits: Kits) -> Iterator[Session]:
    """A session of the lead, once two sites are there."""
    session = new_secure_session(LEAD, str(kits.lead))
    try:
        until = time.monotonic() + 30
        while len(session.get_system_info().client_info) < 2 and time.monotonic() < until:
            time.sleep(0.2)
        yield session
    finally:
        session.close()


def connected(kits: Kits) -> set[str]:
    with visit(kits) as session:
        return {client.name for client in session.get_system_info().client_info}


def ports(party: Party) -> list[int]:
    connections = [link for one in family(party) for link in one.net_connections()]
    return [link.laddr.port for link in connections if link.status == psutil.CONN_LISTEN]


def speaks_tls(port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), 5) as plain, context.wrap_socket(plain) as line:
        return line.version() is not None


@pytest.mark.slow
def test_a_server_that_was_tampered_with_reads_no_file_of_a_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The site 'open' grants the same rights but lacks the restrictions, so the attack works."""
    port = free_port()
    sites = {"open": {}, "closed": {}}
    kits = create(Consortium(name="lungs", coordinator={"port": port}, sites=sites), tmp_path / "made")
    table = tmp_path / "patients.csv"
    table.write_text("age,ill\n71,1\n")

    def unrestricted(folder: Path, identity: Identity) -> None:
        configure_site(folder, identity)
        if identity.name == "open":
            resources = local(folder, "resources.json")
            resources["components"] = [
                one for one in resources["components"] if one["id"] != "restricted_client"
            ]
            (folder / "local" / "resources.json").write_text(json.dumps(resources))

    monkeypatch.setattr(processes, "configure_site", unrestricted)
    command = [sys.executable, "-c", TAMPERED, "-m", str(kits.server), "-s", "fed_server.json"]
    command += ["--set", "secure_train=true", "config_folder=config", "org=coordinator"]
    told = {**os.environ, STORAGE: str(kits.server / "storage")}
    parties = [Party(subprocess.Popen(command, cwd=kits.server, env=told), kits.server)]
    try:
        wait_until_listening("localhost", port, parties[0])
        parties += [start_site(kit_of(kits, name, tmp_path / name)) for name in sites]
        with visit(kits) as session:
            answers = {name: str(session.api.do_command(f"cat {name} {table}")) for name in sites}
    finally:
        for party in parties:
            party.stop()
    assert "71,1" in answers["open"]
    assert "71,1" not in answers["closed"] and "invalid_request" in answers["closed"]


TAMPERED = """
import runpy
from nvflare.private.fed.server import shell_cmd
honest = shell_cmd.new_message
shell_cmd.new_message = lambda conn, topic, body, require_authz: honest(conn, topic, body, False)
for one in vars(shell_cmd).values():
    if hasattr(one, "validate_shell_command"):
        one.validate_shell_command = lambda *_: ""
runpy.run_module("nvflare.private.fed.app.server.server_train", run_name="__main__", alter_sys=True)
"""


@pytest.mark.slow
def test_whoever_starts_a_server_takes_it_along(tmp_path: Path) -> None:
    kits = create(
        Consortium(name="lungs", coordinator={"port": free_port()}, sites={"north": {}}), tmp_path / "made"
    )
    starter = subprocess.Popen([sys.executable, "-c", STARTER, str(kits.server)], stdout=subprocess.PIPE)
    try:
        assert starter.stdout is not None
        started = psutil.Process(int(starter.stdout.readline()))
    finally:
        starter.send_signal(signal.SIGKILL)
        starter.communicate()
    until = time.monotonic() + 10
    while still_running([started]) and time.monotonic() < until:
        time.sleep(0.05)
    assert not still_running([started])


STARTER = """
import sys
from unpooled.engines.nvflare.consortium import read_identity
from unpooled.engines.nvflare.processes import start_server, wait_until_listening
server = start_server(sys.argv[1])
wait_until_listening("localhost", read_identity(sys.argv[1]).port, server)
print(server.process.pid, flush=True)
server.wait()
"""
