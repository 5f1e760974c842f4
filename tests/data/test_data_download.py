"""Downloads, from a server on this machine."""

import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from remanence.data import DataError
from remanence.data.dataset import DataSet, File, Form

pytest.importorskip("pooch")

BYTES = bytes(range(256)) * 1000
CHECKSUM = f"sha256:{hashlib.sha256(BYTES).hexdigest()}"


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; `cut/...` announces more than it sends."""

    def log_message(self, *words):
        pass

    def do_GET(self):
        if self.path.startswith("/cut/"):
            self.send_response(200)
            self.send_header("Content-Length", str(len(BYTES)))
            self.end_headers()
            self.wfile.write(BYTES[:1000])
        else:
            super().do_GET()


@pytest.fixture
def online(own, monkeypatch):
    monkeypatch.delenv("REMANENCE_OFFLINE")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return own


@pytest.fixture
def server(tmp_path):
    """The address of a server, and the folder it serves."""
    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}/", folder
        serving.shutdown()
        thread.join()


def known(*places, also=()):
    def form(name, found):
        file = File(name, CHECKSUM, len(BYTES), tuple(f"{place}{name}" for place in found))
        return Form((file,), lambda folder: (folder / name).read_bytes())

    return DataSet(
        name="numbers",
        description="some bytes",
        forms=(form("numbers.bin", places), *(form("others.bin", also) for _ in also[:1])),
        counts={"all": {"bytes": len(BYTES)}},
        count=lambda raw: {"all": {"bytes": len(raw)}},
    )


def cache(own):
    return own.parent / "cache"


def nothing_stays(own):
    assert [path for path in cache(own).rglob("*") if path.is_file()] == []


def test_what_is_missing_is_downloaded_into_the_cache_folder_once(online, server):
    place, folder = server
    (folder / "numbers.bin").write_bytes(BYTES)
    assert known(place).load() == BYTES
    assert [path.name for path in (cache(online) / "numbers").iterdir()] == ["numbers.bin"]
    (folder / "numbers.bin").unlink()
    assert known(place).load() == BYTES


def test_a_file_with_another_checksum_is_refused(online, server):
    place, folder = server
    (folder / "numbers.bin").write_bytes(BYTES[::-1])
    with pytest.raises(
        DataError, match=r"numbers\.bin could not be downloaded from 127\.0\.0\.1:\d+ \(its file has a different"
    ):
        known(place).load()
    nothing_stays(online)


def test_a_download_that_breaks_off_leaves_nothing(online, server):
    with pytest.raises(DataError, match=r"numbers\.bin could not be downloaded from 127\.0\.0\.1"):
        known(server[0] + "cut/").load()
    nothing_stays(online)


def test_a_mirror_without_the_file_is_reported(online, server):
    with pytest.raises(DataError, match=r"\(status 404\).*; put numbers\.bin there, or set REMANENCE_DATA"):
        known(server[0]).load()
    nothing_stays(online)


def test_the_next_mirror_is_tried(online, server):
    place, folder = server
    (folder / "numbers.bin").write_bytes(BYTES)
    assert known(place + "nowhere/", "http://127.0.0.1:9/", place + "cut/", place).load() == BYTES


def test_the_next_form_is_tried(online, server):
    place, folder = server
    (folder / "others.bin").write_bytes(BYTES)
    assert known(place, also=(place,)).load() == BYTES


def test_no_connection_is_one_sentence(online):
    with pytest.raises(DataError) as caught:
        known("http://127.0.0.1:9/").load()
    said = str(caught.value)
    assert "127.0.0.1:9 (no connection)" in said
    assert "\n" not in said
    nothing_stays(online)


def test_nothing_is_downloaded_offline(own, server):
    place, folder = server
    (folder / "numbers.bin").write_bytes(BYTES)
    with pytest.raises(DataError, match="downloads are off"):
        known(place).load()


@pytest.mark.parametrize("value", ["", "0", "no"])
def test_values_that_mean_online(own, server, monkeypatch, value):
    monkeypatch.setenv("REMANENCE_OFFLINE", value)
    place, folder = server
    (folder / "numbers.bin").write_bytes(BYTES)
    assert known(place).load() == BYTES


def test_a_cache_folder_that_cannot_be_written_is_named(online, server):
    place, folder = server
    (folder / "numbers.bin").write_bytes(BYTES)
    cache(online).write_text("a file where the folder should be")
    with pytest.raises(DataError, match="to be a writable folder"):
        known(place).load()


def test_without_pooch_it_says_what_to_install(online, server, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pooch", None)
    with pytest.raises(DataError, match=r"without package pooch; pip install 'remanence-rnn\[train\]'"):
        known(server[0]).load()
