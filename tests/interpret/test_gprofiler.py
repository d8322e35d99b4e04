"""g:Profiler through its client: a question recorded by a local server, and its answer read."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from groundmetric.interpret import g_profiler

pytest.importorskip("gprofiler", reason="the client of g:Profiler is not installed")

# The shape of an answer of /api/gost/profile/: two terms, and which of the three genes are in each.
ANSWER = {
    "meta": {
        "query_metadata": {"queries": {"query_1": ["ISG15", "MX1", "GAPDH"]}},
        "genes_metadata": {
            "query": {
                "query_1": {
                    "ensgs": ["ENSG01", "ENSG02", "ENSG03"],
                    "mapping": {"ISG15": ["ENSG01"], "MX1": ["ENSG02"], "GAPDH": ["ENSG03"]},
                }
            }
        },
    },
    "result": [
        {
            "source": "REAC", "native": "REAC:2", "name": "Glycolysis", "p_value": 0.4, "significant": False,
            "description": "", "term_size": 60, "query_size": 3, "intersection_size": 1,
            "effective_domain_size": 9000, "precision": 0.3, "recall": 0.02, "query": "query_1", "parents": [],
            "intersections": [[], [], ["TAS"]],
        },
        {
            "source": "GO:BP", "native": "GO:1", "name": "response to virus", "p_value": 0.001, "significant": True,
            "description": "", "term_size": 300, "query_size": 3, "intersection_size": 2,
            "effective_domain_size": 9000, "precision": 0.7, "recall": 0.01, "query": "query_1", "parents": [],
            "intersections": [["IDA"], ["IDA"], []],
        },
    ],
}  # fmt: skip


@pytest.fixture
def server():
    """A server on this computer that keeps what it is asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.server.asked.append((self.path, question))
            refused = question["organism"] != "hsapiens"
            body = json.dumps({"message": "unknown organism"} if refused else ANSWER).encode()
            self.send_response(400 if refused else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as found:
        found.asked = []
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def address(server):
    return f"http://127.0.0.1:{server.server_port}"


def test_question_and_answer(server):
    genes, background = ["ISG15", "MX1", "GAPDH"], ["ISG15", "MX1", "GAPDH", "CD4"]
    found = g_profiler(genes, background, sources=("GO:BP", "REAC"), base_url=address(server))
    path, question = server.asked[0]
    assert path == "/api/gost/profile/"
    assert question["query"] == genes
    assert question["background"] == background
    assert question["domain_scope"] == "custom"
    assert question["significance_threshold_method"] == "fdr"
    assert found.sets == ["GO:1 response to virus", "REAC:2 Glycolysis"]
    assert found.overlap == [["ISG15", "MX1"], ["GAPDH"]]
    np.testing.assert_allclose(found.q, [0.001, 0.4])
    np.testing.assert_allclose(found.effect, [2 / (300 * 3 / 9000), 1 / (60 * 3 / 9000)])
    assert found.table()["overlap"].tolist() == [2, 1]


def test_a_refusal_is_passed_on(server):
    with pytest.raises(ValueError, match="refuses the question: unknown organism"):
        g_profiler(["ISG15"], organism="human", base_url=address(server))


def test_without_internet_it_says_what_to_do(server):
    gone = address(server)
    server.shutdown()
    server.server_close()
    with pytest.raises(ConnectionError, match="use over_representation with a GMT file"):
        g_profiler(["ISG15"], base_url=gone)


def test_without_the_client_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gprofiler", None)
    with pytest.raises(ModuleNotFoundError, match=r"groundmetric\[enrichment\]"):
        g_profiler(["ISG15"])
    with pytest.raises(ValueError, match="no features are given"):
        g_profiler([])
