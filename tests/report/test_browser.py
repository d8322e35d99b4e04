"""The report opened in headless Chromium: it works without an error and loads no external resource."""

import json
import shutil
import time

import pytest

from .conftest import NAMES, SCRIPT

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--force-prefers-reduced-motion",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium") or shutil.which("google-chrome")
    if driver is None or chromium is None:
        pytest.skip("chromium and chromium-driver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}", "--window-size=1280,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    folder = tmp_path_factory.mktemp("saved")
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    browser.saved = folder
    yield browser
    browser.quit()


@pytest.fixture
def opened(browser, written):
    browser.get(written[0].as_uri())
    browser.execute_script("document.querySelectorAll('details').forEach(part => part.open = true)")
    return browser


def size(browser, width, height=900):
    shape = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)


def column(browser, table, number):
    script = """return [...document.getElementById(arguments[0]).tBodies[0].rows].filter(row => !row.hidden)
        .map(row => row.cells[arguments[1]].dataset.value ?? row.cells[arguments[1]].textContent)"""
    return browser.execute_script(script, table, number)


def find(browser, css):
    return browser.find_element("css selector", css)


def move_to(browser, element):
    from selenium.webdriver import ActionChains

    browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
    ActionChains(browser).move_to_element(element).perform()


def tip_over(browser, element):
    """What the tip says with the pointer over an element; on a busy machine the page may still be moving."""
    for _ in range(50):
        move_to(browser, element)
        text = find(browser, "#tip").text
        if text:
            break
        move_to(browser, find(browser, "h1"))
        time.sleep(0.1)
    return text


def test_no_error_and_no_request(browser, written):
    browser.get_log("performance")
    browser.get(written[0].as_uri())
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    asked = [
        entry["message"] for entry in browser.get_log("performance") if "Network.requestWillBeSent" in entry["message"]
    ]
    assert not [message for message in asked if "http://" in message or "https://" in message]
    assert browser.execute_script("return window.broken") is None


def test_no_page_is_wider_than_its_screen(opened):
    cut = """return [...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth + 1)
        .map(box => box.ariaLabel + ' ' + box.scrollWidth)"""
    for width in (1400, 1280, 420, 390, 320):
        size(opened, width)
        assert opened.execute_script("return document.documentElement.scrollWidth") <= width
        assert width < 400 or opened.execute_script(cut) == []
    size(opened, 1280)


def test_tables_sort_by_a_heading_and_say_so(opened):
    head = "#genes-table thead th:nth-child(2)"
    find(opened, f"{head} button").click()
    names = column(opened, "genes-table", 1)
    assert find(opened, head).get_attribute("aria-sort") == "ascending"
    find(opened, f"{head} button").click()
    assert find(opened, head).get_attribute("aria-sort") == "descending"
    assert column(opened, "genes-table", 1) == names[::-1]
    find(opened, "#genes-table thead th:nth-child(3) button").click()
    shares = [float(share) for share in column(opened, "genes-table", 2)]
    assert shares == sorted(shares, reverse=True)
    assert find(opened, "#said").get_attribute("textContent").startswith("Sorted by Importance")


def test_tables_filter_by_text(opened):
    every = column(opened, "genes-table", 1)
    find(opened, "[data-table]:has(#genes-table) input").send_keys("prog0")
    assert column(opened, "genes-table", 1) == [name for name in every if "PROG0" in name] != []


def test_a_hover_shows_the_name_of_a_sample(opened):
    marks = opened.find_elements("css selector", ".mark")
    assert len(marks) == len(NAMES)
    for mark in marks[:2]:
        opened.execute_script("arguments[0].parentNode.append(arguments[0])", mark)  # above its neighbours
        name = tip_over(opened, mark).splitlines()[0]
        assert name == mark.get_attribute("aria-label").rpartition(", condition")[0]
        assert name in NAMES


def test_a_sample_is_highlighted_in_map_matrix_table_and_cells(opened):
    def highlighted():
        script = "return [...document.querySelectorAll('[data-s].on')].map(part => part.tagName + part.dataset.s)"
        return set(opened.execute_script(script))

    tip_over(opened, opened.find_elements("css selector", ".mark")[2])
    assert highlighted() == {"use2", "text2", "TR2"}
    assert len(opened.find_elements("css selector", ".band.on")) == 2
    assert len(opened.find_elements("css selector", ".dots.of-sample")) == 2
    move_to(opened, find(opened, "#samples-table tbody tr[data-s='4']"))
    assert highlighted() == {"use4", "text4", "TR4"}
    assert "distance" in tip_over(opened, find(opened, "image.matrix"))
    assert len(highlighted()) in (3, 6)


def test_a_hover_shows_a_cell(opened):
    shown = opened.execute_script("""
        const svg = document.querySelector("[data-map=cells] svg.figure"), box = svg.getBoundingClientRect();
        const data = JSON.parse(document.getElementById("data").textContent).cells, view = svg.viewBox.baseVal;
        const x = box.left + data.x[0] / view.width * box.width, y = box.top + data.y[0] / view.height * box.height;
        svg.dispatchEvent(new PointerEvent("pointermove", {clientX: x, clientY: y}));
        return document.getElementById("tip").textContent""")
    assert "cell_type: " in shown
    assert any(name in shown for name in NAMES)


def test_colour_by_another_column(opened):
    figure = "[data-map=samples]"

    def looks():
        script = "return [...document.querySelectorAll('.mark')].map(m => [m.getAttribute('fill'), m.href.baseVal])"
        return [tuple(look) for look in opened.execute_script(script)]

    before = looks()
    options = opened.find_elements("css selector", f"{figure} option")
    next(option for option in options if option.text == "patient").click()
    after = looks()
    assert len(set(before)) == 2
    assert len({fill for fill, _ in after}) == 6
    assert len({shape for _, shape in after}) == 5
    assert len(opened.find_elements("css selector", f"{figure} .legend li")) == 6
    options[0].click()
    assert looks() == before
    assert len(opened.find_elements("css selector", f"{figure} .legend li")) == 2
    cells = "[data-map=cells]"
    relevance = [
        option for option in opened.find_elements("css selector", f"{cells} option") if option.text == "relevance"
    ]
    relevance[0].click()
    assert len(opened.find_elements("css selector", f"{cells}:first-child .dots path")) > 2


def test_arrows_read_distances(opened):
    figure = find(opened, "[data-map=matrix]")
    opened.execute_script("arguments[0].focus()", figure)
    figure.send_keys("\ue014")  # right
    spoken = find(opened, "#said").get_attribute("textContent")
    data = json.loads(find(opened, "#data").get_attribute("textContent"))
    first, second = (data["samples"]["names"][k] for k in data["samples"]["order"][:2])
    assert spoken.startswith(first)
    assert f"– {second} (" in spoken
    assert float(spoken.rpartition(" ")[2]) > 0


def test_keyboard_goes_from_sample_to_sample(opened):
    marks = opened.find_elements("css selector", ".mark")
    opened.execute_script("arguments[0].focus()", marks[0])
    marks[0].send_keys("\ue014")  # right
    assert opened.switch_to.active_element.get_attribute("aria-label") == marks[1].get_attribute("aria-label")
    assert [mark.get_attribute("tabindex") for mark in marks].count("0") == 1


def test_hostile_names_are_shown_as_text(opened):
    assert column(opened, "samples-table", 0) == NAMES
    assert f"PROG01{SCRIPT}" in column(opened, "genes-table", 1)
    assert opened.execute_script("return document.querySelectorAll('main script, main b, main u, img').length") == 0


def test_a_table_is_saved_as_csv(opened):
    import csv
    import time

    opened.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(opened.saved)})
    button = find(opened, "[data-table]:has(#samples-table) button[data-csv]")
    opened.execute_script("arguments[0].click()", button)
    path = opened.saved / "samples-table.csv"
    for _ in range(100):
        if path.exists():
            break
        time.sleep(0.1)
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    assert [row[0] for row in rows] == ["Sample", *NAMES]
    assert rows[0][1] == "condition"


def test_dark_and_print(opened):
    def background():
        return opened.execute_script("return getComputedStyle(document.body).backgroundColor")

    seen = {}
    for scheme in ("light", "dark"):
        feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
        seen[scheme] = background()
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", **feature})
    assert seen["light"] == background() == "rgb(255, 255, 255)" != seen["dark"]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    assert len(opened.execute_cdp_cmd("Page.printToPDF", {})["data"]) > 10_000


def luminance(colour):
    """Relative luminance of WCAG 2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_colour_is_seen_on_a_dark_page(opened):
    opened.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    script = """return ['figure .figure', '[data-map=cells] .figure', 'figure .legend'].map(
        css => getComputedStyle(document.querySelector(css)).backgroundColor.match(/[0-9.]+/g).map(Number))"""
    papers = opened.execute_script(script)
    data = json.loads(find(opened, "#data").get_attribute("textContent"))
    shades = [tuple(int(code[k : k + 2], 16) for k in (1, 3, 5)) for code in [*data["colours"], *data["ramp"][:6]]]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    for paper in papers:
        assert len(paper) == 3  # not transparent
        for shade in shades:
            light, dark = sorted((luminance(paper[:3]), luminance(shade)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) > 1.3, (paper, shade)
