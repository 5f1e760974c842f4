import pytest

from remanence import language


@pytest.fixture
def texts(own, tmp_path):
    """Writes a folder of texts: names and contents, strings in UTF-8."""
    folder = tmp_path / "texts"

    def write(**files):
        for name, content in files.items():
            path = folder / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder

    return write


@pytest.fixture(scope="session")
def real(real_data):
    """Loads a real corpus once, or skips."""
    loaded = {}

    def load(name):
        with real_data(language.KNOWN[name].source):
            if name not in loaded:
                loaded[name] = language.load(name)
        return loaded[name]

    yield load
    loaded.clear()
