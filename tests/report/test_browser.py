"""The page in a browser: it opens without complaint, draws, filters, changes its theme, fits a phone and prints."""

import base64
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from remanence.experiments.sections import gather
from remanence.report import page
from remanence.report.figure import Axis, Figure, Heat, Panel, Reference, Series
from remanence.report.look import KNOWN as THEMES
from remanence.report.section import Claim, Section
from remanence.table import Table

pytestmark = pytest.mark.long

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *(
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-dev-shm-usage",
        "--window-size=1280,900",
    ),
)
RESULTS = Path(__file__).parents[2] / "results"
NASTY = "</script><img src=x onerror='window.hacked = 1'><script>window.hacked = 1</script>"
SECONDS = 20


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """The browser of the tests."""
    for needed in ("selenium", "plotly", "jinja2"):
        pytest.importorskip(needed)
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
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(program))
    yield started
    started.quit()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The page of the results that are part of the project, and one with every kind of figure and hostile words."""
    folder = tmp_path_factory.mktemp("pages")
    page.write(gather([RESULTS]), folder / "results.html")
    page.write([hostile()], folder / "hostile.html", title=NASTY)
    page.write([replace(hostile(), preset="", claims=())], folder / "units.html", title="Units")
    return folder


def hostile():
    axes = Axis(NASTY), Axis("y")
    panels = [
        Panel(
            NASTY, *axes, [Series(NASTY, [0, 1, 2], [0, 1, 4], [0, 0, 3], [1, 2, 5])], references=[Reference(2, NASTY)]
        ),
        Panel("bars", *axes, [Series("bars", [0, 1], [1, 2], [0, 1], [2, 3], mark="bars")], note=NASTY),
        Panel("points", *axes, [Series("points", [1, 2], [1, 2], [0, 1], [2, 3], mark="points")]),
        Panel("heat", *axes, heat=Heat([[0.0, 1.0], [1.0, 0.0]], NASTY, rows=[NASTY, ""])),
    ]
    return Section(
        id=NASTY,
        preset=NASTY,
        title=NASTY,
        models=[NASTY],
        claims=[Claim(NASTY, "holds", NASTY)],
        tables=[Table(NASTY, (NASTY, "n"), [(NASTY, "1")])],
        figures=[Figure(NASTY, NASTY, panels, NASTY)],
        configurations=[(NASTY, NASTY)],
    )


@pytest.fixture
def opened(driver, written):
    """Opens a page with an empty profile and fails on console errors at the end."""

    def open_page(name="results"):
        driver.get((written / f"{name}.html").as_uri())
        driver.execute_script("localStorage.clear()")
        driver.get_log("browser")
        driver.refresh()
        return driver

    yield open_page
    assert [line["message"] for line in driver.get_log("browser")] == []


def wait(driver, script, *arguments):
    """Wait until a script returns a value."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(driver, SECONDS, poll_frequency=0.05).until(lambda one: one.execute_script(script, *arguments))


def look_at(driver, plot):
    """Wait until it is drawn."""
    driver.execute_script("arguments[0].scrollIntoView({behavior: 'instant', block: 'center'})", plot)
    wait(driver, "return arguments[0].dataset.ready === 'yes' && arguments[0].querySelector('.cartesianlayer')", plot)
    return plot


def draw_everything(driver):
    """Scroll to every figure."""
    return [look_at(driver, plot) for plot in driver.find_elements("css selector", ".plot")]


def draw_first(driver):
    """Scroll to the first figure."""
    return look_at(driver, driver.find_element("css selector", ".plot"))


def test_every_figure_of_the_results_is_drawn_when_visible_and_nothing_is_fetched(opened):
    driver = opened()
    drawn = driver.find_elements("css selector", ".plot[data-drawn]")
    assert len(drawn) < len(driver.find_elements("css selector", ".plot"))  # figures out of view are not drawn
    plots = draw_everything(driver)
    assert len(plots) >= len(list(RESULTS.glob("*/*/*/summary.json")))
    for plot in plots:
        lines = driver.execute_script(
            "return [...arguments[0].querySelectorAll('.scatterlayer .js-line')].map((one) => one.getAttribute('d'))",
            plot,
        )
        assert lines or plot.find_elements("css selector", ".point, .heatmaplayer image")
        name, number = plot.get_attribute("data-figure"), plot.get_attribute("data-panel")
        axis, now = driver.execute_script(
            "const figures = JSON.parse(document.getElementById('figures').textContent);"
            "return [figures[arguments[1]].panels[arguments[2]].layout.xaxis, arguments[0]._fullLayout.xaxis.range]",
            *(plot, name, int(number)),
        )
        if "autorangeoptions" in axis:
            assert axis["autorangeoptions"].get("minallowed", now[0]) == now[0]
        assert all(line.startswith("M") for line in lines)
    names = driver.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert [name for name in names if not name.startswith(("data:", "blob:"))] == []


def test_every_kind_of_figure_is_drawn_and_hostile_words_are_words(opened):
    driver = opened("hostile")
    plots = draw_everything(driver)
    marks = ("js-line", "bars .point", "scatterlayer .points .point", "heatmaplayer image")
    for plot, mark in zip(plots, marks, strict=True):
        wait(driver, "return arguments[0].querySelector(arguments[1]) !== null", plot, f".{mark}")
    driver.execute_script("Plotly.Fx.hover(arguments[0], [{curveNumber: 1, pointNumber: 1}])", plots[0])
    assert "onerror" in wait(driver, "return document.querySelector('.hoverlayer')?.textContent")
    assert driver.execute_script("return window.hacked") is None
    assert driver.title == NASTY
    assert driver.find_elements("css selector", "img") == []


def test_a_page_of_something_else_draws_and_switches_its_theme_without_a_filter(opened):
    driver = opened("units")
    assert driver.find_elements("id", "filter") == []
    draw_everything(driver)
    before = driver.execute_script("return document.documentElement.dataset.theme")
    driver.execute_script("document.getElementById('theme').click()")
    assert driver.execute_script("return document.documentElement.dataset.theme") != before


def test_the_filter_shows_what_has_all_words(opened):
    driver = opened()
    box = driver.find_element("id", "filter")
    every = [one.get_attribute("id") for one in driver.find_elements("css selector", ".experiment")]

    def shown():
        sections = [one for one in driver.find_elements("css selector", ".experiment") if one.is_displayed()]
        rows = [one for one in driver.find_elements("css selector", "[data-section]") if one.is_displayed()]
        names = [one.get_attribute("id") for one in sections]
        assert names == [one.get_attribute("data-section") for one in rows]
        return names

    assert shown() == every
    preset = next(one for one in ("paper", "short") if f"plstm-copy-200-{one}" in every)
    box.send_keys(f"PLSTM/COPY-200 {preset}")
    assert shown() == [f"plstm-copy-200-{preset}"]
    box.clear()
    box.send_keys("nothing has this")
    assert shown() == []
    assert driver.find_element("id", "nothing").is_displayed()
    box.clear()
    box.send_keys(" ")
    assert shown() == every


def colours(driver, plot):
    return driver.execute_script(
        "return [...arguments[0].querySelectorAll('.scatterlayer .js-line')].map((one) => one.style.stroke)", plot
    )


def in_css(colour):
    return f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"


def test_the_theme_switches_and_is_remembered(opened):
    driver = opened()
    plot = draw_first(driver)
    button = driver.find_element("id", "theme")
    paper = "return getComputedStyle(document.body).backgroundColor"
    first = driver.execute_script("return document.documentElement.dataset.theme")
    other = "light" if first == "dark" else "dark"
    before = driver.execute_script(paper)
    assert set(colours(driver, plot)) <= set(map(in_css, THEMES[first].colours))
    driver.execute_script("arguments[0].click()", button)
    wait(driver, "return document.documentElement.dataset.theme === arguments[0]", other)
    assert driver.execute_script(paper) != before
    assert set(colours(driver, plot)) <= set(map(in_css, THEMES[other].colours))
    driver.refresh()
    assert driver.execute_script("return document.documentElement.dataset.theme") == other


def test_an_entry_of_the_legend_hides_its_series(opened):
    driver = opened()
    plot = draw_first(driver)
    before = len(colours(driver, plot))
    entry = driver.find_element("css selector", ".legend button")
    driver.execute_script("arguments[0].click()", entry)
    assert entry.get_attribute("aria-pressed") == "false"
    assert 0 < len(colours(driver, plot)) < before
    driver.execute_script("arguments[0].click()", entry)
    assert len(colours(driver, plot)) == before


def test_dragging_zooms_and_a_new_theme_keeps_it(opened):
    from selenium.webdriver import ActionChains

    driver = opened()
    plot = draw_first(driver)
    span = "const [low, high] = arguments[0]._fullLayout.xaxis.range; return high - low"
    whole = driver.execute_script(span, plot)
    area = plot.find_element("css selector", ".nsewdrag")
    ActionChains(driver).move_to_element_with_offset(area, -60, 0).click_and_hold().move_by_offset(
        120, 0
    ).release().perform()
    wait(driver, "return arguments[0].dataset.zoomed === 'yes'", plot)
    zoomed = driver.execute_script(span, plot)
    assert 0 < zoomed < whole
    driver.execute_script("document.getElementById('theme').click()")
    assert driver.execute_script(span, plot) == pytest.approx(zoomed)


@pytest.mark.parametrize("name", ["results", "hostile"])
def test_on_a_phone_nothing_is_wider_than_the_screen(opened, name):
    driver = opened(name)
    size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        driver.refresh()
        draw_everything(driver)
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 390
        lefts = driver.execute_script(
            "return [...document.querySelectorAll('.plot')].map((one) => one.getBoundingClientRect().right)"
        )
        assert max(lefts) <= 390
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_on_paper_it_is_light_open_and_whole(opened):
    driver = opened()
    wait(driver, "return window.Plotly !== undefined")
    driver.execute_script(
        "if (document.documentElement.dataset.theme === 'light') document.getElementById('theme').click()"
    )
    driver.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert driver.execute_script("return document.documentElement.dataset.theme") == "light"
    assert driver.find_elements("css selector", "details:not([open]):not(.configurations)") == []
    wait(driver, "return [...document.querySelectorAll('.plot')].every((one) => one.dataset.ready)")
    driver.execute_script("dispatchEvent(new Event('afterprint'))")
    assert driver.execute_script("return document.documentElement.dataset.theme") == "dark"
    assert driver.find_elements("css selector", "details[open]") == []
    printed = base64.b64decode(driver.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") >= len(list(RESULTS.glob("*/*/*/summary.json")))
