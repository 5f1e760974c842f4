"""The site opened from a folder, in a browser: its search finds something, and pages fit a phone."""

import shutil

import pytest

pytestmark = pytest.mark.long

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)
SECONDS = 60


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    pytest.importorskip("selenium")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    program = shutil.which("chromedriver")
    if browser is None or program is None:
        pytest.skip("no browser: chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for option in (*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(option)
    started = webdriver.Chrome(options=options, service=Service(program))
    yield started
    started.quit()


def wait(driver, script):
    """Until a script returns something."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(driver, SECONDS, poll_frequency=0.1).until(lambda one: one.execute_script(script))


def test_the_search_works_from_a_file(driver, site):
    driver.get(f"{(site / 'index.html').as_uri()}?q=recompute")
    links = "[...document.querySelectorAll('.md-search-result__link')].map((one) => one.href)"
    found = wait(driver, f"const found = {links}; return found.length && found")
    assert any("how-to/long-sequences.html" in link for link in found)


@pytest.mark.parametrize("name", ["index", "performance", "reference/gates", "reference/cli", "developers/benchmarks"])
def test_on_a_phone_nothing_is_wider_than_the_screen(driver, site, name):
    size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        driver.get((site / f"{name}.html").as_uri())
        wait(driver, "return document.readyState === 'complete'")
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
