"""The site opened from a folder, in a browser: its search finds something, and pages fit a phone."""

import html
import json
import re
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.long

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    *("--allow-file-access-from-files", "--virtual-time-budget=60000", "--dump-dom"),
)
PHONE = 390
MEASURE = """<iframe width="%d" height="800"></iframe><pre></pre><script>
const [frame, pages, widths] = [document.querySelector("iframe"), %s, {}];
(async () => {
  for (const page of pages) {
    await new Promise((done) => { frame.onload = done; frame.src = page; });
    widths[page] = frame.contentDocument.documentElement.scrollWidth;
  }
  document.querySelector("pre").textContent = JSON.stringify(widths);
})();
</script>"""


@pytest.fixture
def rendered(tmp_path):
    """A function: the document of an address after its scripts ran."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no browser: chromium is not installed")

    def document(address):
        words = [browser, *OPTIONS, f"--user-data-dir={tmp_path / 'profile'}", address]
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=600).stdout

    return document


def test_the_search_works_from_a_file(rendered, site):
    page = rendered(f"{(site / 'index.html').as_uri()}?q=recompute")
    found = re.findall(r'href="([^"]*)" class="md-search-result__link"', page)
    assert any("how-to/long-sequences.html" in link for link in found)


@pytest.mark.slow
def test_on_a_phone_no_page_is_wider_than_the_screen(rendered, site):
    pages = sorted(path.as_uri() for path in site.rglob("*.html") if path.name != "404.html")
    measure = site / "measure.html"
    try:
        measure.write_text(MEASURE % (PHONE, json.dumps(pages)))
        (found,) = re.findall("<pre>(.*?)</pre>", rendered(measure.as_uri()))
    finally:
        measure.unlink()
    widths = json.loads(html.unescape(found))
    assert len(widths) == len(pages)
    assert {page: width for page, width in widths.items() if width > PHONE} == {}
