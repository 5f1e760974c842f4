"""What tests of tasks share."""

import pytest


@pytest.fixture(scope="module")
def own_corpus(tmp_path_factory):
    """A function: the path of a folder with these texts by file name. The tests have their own cache."""
    root = tmp_path_factory.mktemp("corpora")

    def folder_of(**texts):
        folder = root / "-".join(texts)
        folder.mkdir()
        for name, text in texts.items():
            (folder / f"{name}.txt").write_text(text)
        return str(folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REMANENCE_CACHE", str(root / "cache"))
        yield folder_of
