"""Fetching from a portal on this machine that does all that a real one may do."""

import io
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import requests
from anndata import AnnData

from groundmetric.datasets import PAPER_DATASETS, cellxgene, cellxgene_file, portal

ID = PAPER_DATASETS["breast"].dataset_id
DATASET, VERSION = "00000000-0000-4000-8000-000000000000", "11111111-0000-4000-8000-000000000000"


class Portal(BaseHTTPRequestHandler):
    """Answers by what `server.answers` has for the path, in turn; the last answer stays."""

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


def die(request):
    """Close the connection without a word."""
    request.connection.shutdown(socket.SHUT_RDWR)


def stall(request):
    time.sleep(1.0)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(portal, "_PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Portal)
    server.daemon_threads = True
    server.answers, server.asked = {}, []
    server.url = f"http://127.0.0.1:{server.server_port}"
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


@pytest.fixture
def get(server, tmp_path):
    """`cellxgene_file` of the server on this machine, into a folder that is not there yet."""

    def get(dataset_id=ID, **options):
        given = {"folder": tmp_path / "cache", "url": server.url, "api": f"{server.url}/api", **options}
        return cellxgene_file(dataset_id, **given)

    return get


def left(tmp_path):
    return [path.name for path in (tmp_path / "cache").iterdir()]


def test_a_file_is_fetched_once_and_then_kept(server, get, content, tmp_path):
    server.answers[f"/{ID}.h5ad"] = [(200, content)]
    path = get()
    assert path == tmp_path / "cache" / f"{ID}.h5ad"
    assert path.read_bytes() == content
    assert get() == get("breast") == get(f"{ID.upper()}.h5ad") == path
    assert server.asked == [f"/{ID}.h5ad"]
    assert left(tmp_path) == [f"{ID}.h5ad"]


@pytest.mark.parametrize("backed", [False, True])
def test_cellxgene_reads_the_file(server, content, tmp_path, backed):
    server.answers[f"/{ID}.h5ad"] = [(200, content)]
    adata = cellxgene("breast", folder=tmp_path, url=server.url, backed=backed)
    assert adata.isbacked == backed
    assert adata.shape == (3, 3)
    if backed:
        adata.file.close()


def test_a_file_that_was_put_there_by_hand_needs_no_server(tmp_path, content):
    (tmp_path / f"{ID}.h5ad").write_bytes(content)
    assert cellxgene(ID, folder=tmp_path, url="http://127.0.0.1:1").n_obs == 3


@pytest.mark.parametrize("wrap", [lambda versions: versions, lambda versions: {"datasets": versions}])
@pytest.mark.parametrize("code", [403, 404])
def test_the_id_of_a_data_set_leads_to_its_latest_version(server, get, content, wrap, code):
    def version(name):
        kinds = (("RDS", "rds"), ("H5AD", "h5ad"))
        return {"assets": [{"filetype": kind, "url": f"{server.url}/{name}.{end}"} for kind, end in kinds]}

    server.answers = {
        f"/{DATASET}.h5ad": [(code, b"denied")],
        f"/api/datasets/{DATASET}/versions": [(200, json.dumps(wrap([version(VERSION), version("old")])).encode())],
        f"/{VERSION}.h5ad": [(200, content)],
    }
    path = get(DATASET)
    assert path.name == f"{DATASET}.h5ad"
    assert path.read_bytes() == content


def test_an_unknown_id_is_an_error_that_says_where_to_look(server, get, tmp_path):
    with pytest.raises(ValueError, match=f"no data set '{DATASET}': look for its id on https://cellxgene"):
        get(DATASET)
    assert server.asked == [f"/{DATASET}.h5ad", f"/api/datasets/{DATASET}/versions"]  # asked once each
    assert left(tmp_path) == []


@pytest.mark.parametrize("answer", [b"[]", b"{}", b'[{"assets": []}]', b"<html>"])
def test_a_list_of_versions_that_makes_no_sense_is_an_error(server, get, answer):
    server.answers[f"/api/datasets/{DATASET}/versions"] = [(200, answer)]
    with pytest.raises(ConnectionError, match=f"could not fetch .*/api/datasets/{DATASET}/versions: "):
        get(DATASET)


def half(request):
    """Half of what the header promises."""
    request.reply(200, b"\x89HDF\r\n\x1a\n" + bytes(92), length=200)


FAULTS = {
    "half": (half, "IncompleteRead\\(100 bytes read, 100 more expected\\)"),
    "dead": (die, "(closed connection without response|Connection reset|Connection aborted)"),
    "busy": ((503, b"later"), "503 Server Error: Service Unavailable"),
    "silent": (stall, "timed out"),
    "empty": ((200, b""), "the transfer ended after 0 of 0 bytes"),
}
every_fault = pytest.mark.parametrize(("fault", "message"), FAULTS.values(), ids=FAULTS.keys())


@every_fault
def test_a_fault_that_passes_costs_a_second_attempt(server, get, content, fault, message):
    server.answers[f"/{ID}.h5ad"] = [fault, (200, content)]
    assert get(timeout=0.3).read_bytes() == content
    assert len(server.asked) == 2


@every_fault
def test_a_fault_that_stays_is_an_error_with_the_way_out(server, get, tmp_path, fault, message):
    server.answers[f"/{ID}.h5ad"] = [fault]
    with pytest.raises(ConnectionError, match=message) as error:
        get(timeout=0.3)
    assert f"could not fetch {server.url}/{ID}.h5ad: " in str(error.value)
    assert f"save it as {tmp_path / 'cache' / ID}.h5ad" in str(error.value)
    assert len(server.asked) == 2
    assert left(tmp_path) == []


def test_a_page_is_not_taken_for_the_file(server, get, tmp_path):
    server.answers[f"/{ID}.h5ad"] = [(200, b"<html>please log in</html>")]
    with pytest.raises(ConnectionError, match="begins with b'<html>please': it is no HDF5 file"):
        get()
    assert left(tmp_path) == []


def test_without_internet_the_error_says_how_to_get_the_file(get, monkeypatch):
    monkeypatch.setattr(portal, "_PAUSE", 0.0)
    with socket.socket() as taken:  # a port at which nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=r"Connection refused.* Where there is internet, download the .h5ad"):
            get(url=address)


def test_an_interrupted_download_leaves_nothing(server, get, content, tmp_path, monkeypatch):
    server.answers[f"/{ID}.h5ad"] = [(200, content)]

    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(portal._HDF5Content, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        get()
    assert left(tmp_path) == []


@pytest.mark.parametrize("dataset_id", ["brest", "../etc/passwd", "", f"{ID}/x"])
def test_what_is_no_id_is_refused(get, server, dataset_id):
    with pytest.raises(ValueError, match=r"expected an id such as .*\['breast', 'kidney', 'myocardial_infarction'\]"):
        get(dataset_id)
    assert server.asked == []


def test_only_the_web_is_asked(get, tmp_path, content):
    (tmp_path / f"{ID}.h5ad").write_bytes(content)
    with pytest.raises(ConnectionError, match="is not of the web"):
        get(url=f"file://{tmp_path}")


def test_files_are_kept_in_the_cache_folder_of_the_user(server, content, tmp_path, monkeypatch):
    server.answers[f"/{ID}.h5ad"] = [(200, content)]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    assert cellxgene_file(ID, url=server.url) == tmp_path / "mine" / "groundmetric" / "cellxgene" / f"{ID}.h5ad"
    monkeypatch.setenv("HOME", str(tmp_path))
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert cellxgene_file(ID, url=server.url).is_relative_to(tmp_path / ".cache" / "groundmetric")


def test_a_bar_is_shown_on_a_terminal_only(server, get, content, capsys, monkeypatch):
    server.answers[f"/{ID}.h5ad"] = [(200, content)]
    path = get()
    assert capsys.readouterr().err == ""
    path.unlink()
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    get()
    assert "100%" in capsys.readouterr().err
    path.unlink()
    get(progress=False)
    assert capsys.readouterr().err == ""


def test_the_papers_data_sets_have_ids_and_columns():
    assert set(PAPER_DATASETS) == {"breast", "kidney", "myocardial_infarction"}
    assert PAPER_DATASETS["myocardial_infarction"].sample_key == "sample"
    assert PAPER_DATASETS["myocardial_infarction"].label_key == "patient_group"
    for dataset in PAPER_DATASETS.values():
        assert portal._ID.fullmatch(dataset.dataset_id)


def unsaid(body):
    """An answer that does not say how long it is: it ends when the connection does."""

    def answer(request):
        request.send_response(200)
        request.end_headers()
        request.wfile.write(body)

    return answer


def test_of_unknown_length_the_file_itself_says_whether_it_is_whole(server, get, content, tmp_path):
    server.answers[f"/{ID}.h5ad"] = [unsaid(content[: len(content) // 2])]
    with pytest.raises(ConnectionError, match=f"ended after {len(content) // 2:,} of {len(content):,} bytes"):
        get()
    assert left(tmp_path) == []
    server.answers[f"/{ID}.h5ad"] = [unsaid(content)]
    assert get().read_bytes() == content


def test_a_server_that_is_content_with_half_is_not_believed(server, get, content, tmp_path):
    server.answers[f"/{ID}.h5ad"] = [(200, content[:-100])]
    with pytest.raises(ConnectionError, match=f"of {len(content):,} bytes"):
        get()
    assert left(tmp_path) == []


def test_where_nobody_says_how_long_it_is_the_file_is_refused(server, get, tmp_path):
    server.answers[f"/{ID}.h5ad"] = [unsaid(content_start := b"\x89HDF\r\n\x1a\n" + bytes([9]) * 200)]
    with pytest.raises(ConnectionError, match=f"{len(content_start)} bytes came, but neither the server nor the file"):
        get()
    assert left(tmp_path) == []


def test_the_size_that_the_portal_lists_is_checked(server, get, content, tmp_path):
    asset = {"filetype": "H5AD", "url": f"{server.url}/{VERSION}.h5ad", "filesize": len(content) + 1}
    server.answers = {
        f"/api/datasets/{DATASET}/versions": [(200, json.dumps([{"assets": [asset]}]).encode())],
        f"/{VERSION}.h5ad": [(200, content)],
    }
    with pytest.raises(ConnectionError, match=f"ended after {len(content):,} of {len(content) + 1:,} bytes"):
        get(DATASET)
    assert left(tmp_path) == []


@pytest.mark.parametrize("place", ["ftp://127.0.0.1/x.h5ad", "file:///etc/passwd"])
def test_a_redirect_leads_nowhere_but_to_the_web(server, get, tmp_path, place):
    def redirect(request):
        request.send_response(302)
        request.send_header("Location", place)
        request.end_headers()

    server.answers[f"/{ID}.h5ad"] = [redirect]
    with pytest.raises(ConnectionError, match=r"http may not lead to (ftp|file)"):
        get()
    assert left(tmp_path) == []


@pytest.mark.parametrize(("before", "after", "allowed"), [("https", "http", False), ("http", "https", True)])
def test_a_redirect_does_not_give_up_https(before, after, allowed):
    answer = requests.Response()
    answer.status_code, answer.url, answer.raw = 302, f"{before}://a/x", io.BytesIO()
    answer.headers["Location"] = f"{after}://b/x"
    if allowed:
        portal._Answers().see(answer)
    else:
        with pytest.raises(ValueError, match="https may not lead to http"):
            portal._Answers().see(answer)


def test_halves_that_killed_downloads_left_are_removed(server, get, content, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / f".{ID}.h5ad.0123456789abcdef.part").write_text("half")
    server.answers[f"/{ID}.h5ad"] = [(200, content)]
    get()
    assert left(tmp_path) == [f"{ID}.h5ad"]
