"""Downloads from a portal on this machine, which answers as the real one may."""

import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from anndata import AnnData

from groundmetric._internal.validation import ParameterError
from groundmetric.datasets import PAPER_DATASETS, cellxgene, portal

ID = PAPER_DATASETS["breast"].dataset_id
# pooch does not close the connection of an answer that is an error.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
DATASET, VERSION = "00000000-0000-4000-8000-000000000000", "11111111-0000-4000-8000-000000000000"


class Portal(BaseHTTPRequestHandler):
    """Answers from `server.answers` for the path, in turn; the last answer stays."""

    def do_GET(self):
        self.server.asked.append(self.path)
        answers = self.server.answers.get(self.path, [(404, b"no")])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if callable(answer):
            answer(self)
        else:
            self.reply(*answer)

    def reply(self, code, body, length=None):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


def close_connection(request):
    request.connection.shutdown(socket.SHUT_RDWR)


def stall(request):
    time.sleep(4.0)


def half(request):
    """Half of the length in the header."""
    request.reply(200, b"\x89HDF\r\n\x1a\n" + bytes(92), length=200)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Portal)
    server.daemon_threads = True
    server.answers, server.asked = {}, []
    server.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(portal, "FILES", server.url)
    monkeypatch.setattr(portal, "API", f"{server.url}/api")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "it.h5ad"
    AnnData(np.eye(3, dtype=np.float32)).write_h5ad(path)
    return path.read_bytes()


def test_a_file_is_downloaded_once_and_read(server, content, tmp_path):
    server.answers[f"/{ID}.h5ad"] = [(200, content)]
    for name in ("breast", ID, f"{ID.upper()}.h5ad"):
        assert cellxgene(name, folder=tmp_path).shape == (3, 3)
    assert server.asked == [f"/api/datasets/{ID}/versions", f"/{ID}.h5ad"]
    assert [path.name for path in tmp_path.iterdir()] == [f"{ID}.h5ad"]


def test_the_id_of_a_data_set_leads_to_its_latest_version(server, content, tmp_path):
    def version(name):
        kinds = (("RDS", "rds"), ("H5AD", "h5ad"))
        return {"assets": [{"filetype": kind, "url": f"{server.url}/{name}.{end}"} for kind, end in kinds]}

    server.answers = {
        f"/api/datasets/{DATASET}/versions": [(200, json.dumps([version(VERSION), version("old")]).encode())],
        f"/{VERSION}.h5ad": [(200, content)],
    }
    assert cellxgene(DATASET, folder=tmp_path).n_obs == 3
    assert (tmp_path / f"{DATASET}.h5ad").read_bytes() == content


@pytest.mark.parametrize("answer", [b"[]", b"{}", b'[{"assets": []}]', b"<html>"])
def test_a_list_of_versions_without_a_file_is_an_error(server, answer, tmp_path):
    server.answers[f"/api/datasets/{DATASET}/versions"] = [(200, answer)]
    with pytest.raises(ConnectionError):
        cellxgene(DATASET, folder=tmp_path)


FAULTS = {"half": half, "closed": close_connection, "busy": (503, b"later"), "silent": stall, "empty": (200, b"")}
every_fault = pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())


@every_fault
def test_a_fault_that_passes_costs_a_second_attempt(server, content, tmp_path, fault, monkeypatch):
    server.answers[f"/{ID}.h5ad"] = [fault, (200, content)]
    # The second answer has to arrive within the timeout, also on a busy machine.
    monkeypatch.setattr(portal, "_TIMEOUT", 2.0 if fault is stall else 30.0)
    assert cellxgene(ID, folder=tmp_path).n_obs == 3
    assert server.asked.count(f"/{ID}.h5ad") == 2


@every_fault
def test_a_fault_that_stays_is_an_error_that_says_where_to_save_the_file(server, tmp_path, fault, monkeypatch):
    monkeypatch.setattr(portal, "_TIMEOUT", 0.3)
    server.answers[f"/{ID}.h5ad"] = [fault]
    with pytest.raises(ConnectionError) as error:
        cellxgene(ID, folder=tmp_path)
    assert str(tmp_path / f"{ID}.h5ad") in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_page_or_a_truncated_file_is_refused(server, content, tmp_path):
    for body in (b"<html>please log in</html>", content[:-100]):
        server.answers[f"/{ID}.h5ad"] = [(200, body)]
        with pytest.raises(ConnectionError, match="not a complete HDF5 file"):
            cellxgene(ID, folder=tmp_path)
        assert list(tmp_path.iterdir()) == []


def test_an_unknown_id_is_an_error_that_says_where_to_look(server, tmp_path):
    with pytest.raises(ConnectionError, match="https://cellxgene"):
        cellxgene(DATASET, folder=tmp_path)


def test_a_file_that_was_put_there_by_hand_needs_no_server(tmp_path, content, monkeypatch):
    monkeypatch.setattr(portal, "API", "http://127.0.0.1:1")
    (tmp_path / f"{ID}.h5ad").write_bytes(content)
    assert cellxgene(ID, folder=tmp_path).n_obs == 3


@pytest.mark.parametrize("dataset_id", ["brest", "../etc/passwd", "", f"{ID}/x"])
def test_an_invalid_id_is_refused(server, dataset_id):
    with pytest.raises(ParameterError) as caught:
        cellxgene(dataset_id)
    assert (caught.value.parameter, caught.value.value) == ("dataset_id", dataset_id)
    assert server.asked == []


def test_files_are_kept_in_the_cache_folder_of_the_user(server, content, tmp_path, monkeypatch):
    server.answers[f"/{ID}.h5ad"] = [(200, content)]
    monkeypatch.setenv("HOME", str(tmp_path))
    for home, folder in ((str(tmp_path / "mine"), "mine"), ("", ".cache")):
        monkeypatch.setenv("XDG_CACHE_HOME", home)
        assert cellxgene(ID).n_obs == 3
        assert (tmp_path / folder / "groundmetric" / "cellxgene" / f"{ID}.h5ad").exists()


def test_the_papers_data_sets_have_ids_and_columns():
    assert set(PAPER_DATASETS) == {"breast", "kidney", "myocardial_infarction"}
    assert PAPER_DATASETS["myocardial_infarction"].sample_key == "sample"
    assert PAPER_DATASETS["myocardial_infarction"].label_key == "patient_group"
    for dataset in PAPER_DATASETS.values():
        assert portal._ID.fullmatch(dataset.dataset_id)
