"""A malicious server names a job like a folder of a site's kit, so that the site removes its own key."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from engines.stage import kit_of
from unpooled.engines.nvflare.configuration import configure_site
from unpooled.engines.nvflare.consortium import Consortium, read_identity
from unpooled.engines.nvflare.executor import is_job_id
from unpooled.engines.nvflare.kits import Kits, create

DEPLOY = """
import json, sys
from pathlib import Path
from types import SimpleNamespace

from nvflare.apis.fl_context import FLContextManager
from nvflare.fuel.sec.audit import AuditService
from nvflare.fuel.utils.zip_utils import zip_directory_to_bytes
from nvflare.lighter.utils import load_private_key_file, sign_folders
from nvflare.private.admin_defs import Message
from nvflare.private.defs import RequestHeader, TrainingTopic, new_cell_message
from nvflare.private.fed.client.admin import FedAdminAgent
from nvflare.private.fed.client.client_engine import ClientEngine
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.utils.app_authz import AppAuthzService
from unpooled.engines.nvflare.configuration import write_job
from unpooled.engines.nvflare.executor import RestrictedClient, StudyJobValidator

kit, lead, jobs, work = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]), Path(sys.argv[4])
RestrictedClient()
AuditService.initialize(str(work / "audit.log"))
AppAuthzService.initialize(StudyJobValidator())
engine = ClientEngine.__new__(ClientEngine)  # the real engine, which has not connected
engine.args, engine.rank = SimpleNamespace(workspace=str(kit)), 0
engine.client = SimpleNamespace(client_name="north", components={})
engine.fl_ctx_mgr = FLContextManager(engine=engine, identity_name="north")
agent = FedAdminAgent("north", SimpleNamespace(register_request_cb=lambda **_: None), engine)
for one in ClientRequestProcessors.request_processors:
    agent.register_processor(one)

app = write_job(work, "study", ("north",), "/somewhere") / "site"
key, certificate = lead / "startup/client.key", lead / "startup/client.crt"
sign_folders(str(app), load_private_key_file(str(key)), str(certificate))
replies = {}
for job in jobs:
    request = Message(topic=TrainingTopic.DEPLOY, body=zip_directory_to_bytes(str(app), ""))
    request.set_headers({
        RequestHeader.JOB_ID: job, RequestHeader.JOB_META: {"name": "study"}, RequestHeader.APP_NAME: "site",
    })
    replies[str(job)] = str(agent._dispatch_request(new_cell_message({}, request)).payload.body)
print(json.dumps(replies))
"""


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Kits:
    consortium = Consortium(name="lungs", coordinator={"port": 8002}, sites={"north": {}})  # type: ignore[arg-type]
    return create(consortium, tmp_path_factory.mktemp("lungs") / "made")


def deploy(kits: Kits, kit: Path, work: Path, *jobs: object) -> dict[str, str]:
    """What the site's own process answers to signed jobs with these ids."""
    work.mkdir()
    words = [str(kit), str(kits.lead), json.dumps(jobs), str(work)]
    done = subprocess.run(
        [sys.executable, "-c", DEPLOY, *words], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def contents(folder: Path) -> dict[str, bytes]:
    return {
        one.relative_to(folder).as_posix(): one.read_bytes() for one in folder.rglob("*") if one.is_file()
    }


def test_a_job_named_like_a_folder_of_the_kit_is_refused_and_the_kit_survives(
    kits: Kits, tmp_path: Path
) -> None:
    kit = kit_of(kits, "north", tmp_path / "north")
    configure_site(kit, read_identity(kit))
    before = contents(kit)
    names = ("startup", "local", "identity.json", "../north", "/tmp/x", ".", "", 7, "startup\n")
    told = deploy(kits, kit, tmp_path / "work", *names)
    assert contents(kit) == before
    assert all("no UUID" in reply for reply in told.values()), told


def test_a_job_with_an_id_of_its_own_is_still_accepted(kits: Kits, tmp_path: Path) -> None:
    kit = kit_of(kits, "north", tmp_path / "north")
    configure_site(kit, read_identity(kit))
    before, job = contents(kit), str(uuid4())
    told = deploy(kits, kit, tmp_path / "work", job)
    assert (kit / job).is_dir(), told
    assert before.items() <= contents(kit).items()


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        "startup",
        "{7f1c2a52-93a5-4a8e-9a53-0d6f3a5b1c11}",
        "7F1C2A52-93A5-4A8E-9A53-0D6F3A5B1C11",
        b"",
    ],
)
def test_only_a_uuid_as_it_is_written_is_an_id_of_a_job(value: object) -> None:
    assert not is_job_id(value)
