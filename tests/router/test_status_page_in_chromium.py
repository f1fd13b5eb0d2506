"""The status page as a person sees it, in a real browser: its parts are there, they follow the router, names of others
are text, and a router that is away or asks for a key is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.router.chromium import open_chromium, pixels
from tests.router.finished_requests import NOW, request
from tests.router.page_server import PageServer
from toktier.router.records_faults import RecordsFault
from toktier.router.rows import SlotRow, UpstreamRow
from toktier.router.vocabulary import SlotState, UpstreamState

pytestmark = [pytest.mark.ci, pytest.mark.unsanitized]
PATIENCE = 180
HOSTILE = '"><img src=x onerror="window.harmed=1"><script>window.harmed=1</script>{{7*7}}'
RECORDS = {
    "path": "requests.db", "state": "failing", "fault": "full", "meaning": "the disk or the quota is full",
    "faults": dict.fromkeys(map(str, RecordsFault), 0) | {"full": 3},
    "queued": 5, "written": 40, "dropped": 1234, "keeps_outputs": False, "outputs_written": 0, "outputs_dropped": 0,
    "bytes": 123_456,
}  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    found = open_chromium(tmp_path_factory.mktemp("profile"))
    try:
        found.set_window_size(1200, 1000)
        yield found
    finally:
        found.quit()


@pytest.fixture(scope="module")
def one_server() -> Iterator[PageServer]:
    found = PageServer()
    yield found
    found.close()


@pytest.fixture
def server(one_server: PageServer, browser: Any) -> Iterator[PageServer]:
    """As after a start; the browser's tab is empty again, and nothing that its console said was an error."""
    one_server.forget()
    one_server.key = None
    one_server.asked.clear()
    browser.get_log("browser")
    yield one_server
    browser.get("about:blank")


class Page:
    """What is asked of the page that is open."""

    def __init__(self, browser: Any, url: str) -> None:
        self.browser = browser
        browser.get(url)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0]).innerText", selector))

    def rows(self, table: str) -> list[list[str]]:
        script = """return [...document.getElementById(arguments[0]).tBodies[0].rows]
            .map(row => [...row.cells].map(cell => cell.innerText))"""
        return list(self.run(script, table))

    def until(self, holds: Callable[[], Any]) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.browser, PATIENCE, poll_frequency=0.05).until(lambda _: holds())

    def shown(self) -> None:
        self.until(lambda: self.run("return !document.getElementById('main').hidden"))

    def ask_now(self) -> None:
        """As when the tab comes to the front; the page does not wait for its next turn."""
        self.run("document.dispatchEvent(new Event('visibilitychange'))")

    def totals(self) -> dict[str, str]:
        script = """return Object.fromEntries([...document.querySelectorAll('#totals div')]
            .map(box => [box.querySelector('dt').innerText, box.querySelector('dd').innerText]))"""
        return dict(self.run(script))

    def picture(self, selector: str) -> np.ndarray[Any, Any]:
        return pixels(self.browser.find_element("css selector", selector).screenshot_as_png)

    def colour(self, variable: str) -> list[int]:
        value = self.run(
            "return getComputedStyle(document.documentElement).getPropertyValue(arguments[0])", variable
        ).strip()
        return [int(value[i : i + 2], 16) for i in (1, 3, 5)]

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.fixture
def opened(server: PageServer, browser: Any) -> Callable[[], Page]:
    def open_page(path: str = "/") -> Page:
        page = Page(browser, server.url + path)
        page.shown()
        return page

    return open_page


def busy_hour(server: PageServer) -> None:
    """Requests of half an hour, hits and misses."""
    for n in range(180):
        server.clock.now = 10.0 * n
        for measured in (90, 0, 5) if n % 3 else (90,):
            server.stats.add(request(measured=measured))


def test_every_part_is_there_and_says_what_the_documents_say(server: PageServer, opened: Callable[..., Page]) -> None:
    busy_hour(server)
    server.parts = {
        "records": RECORDS,
        "missing": ["KV events are switched off"],
        "guards": {"running": 1, "refused_invalid_api_key": 7},
    }
    page = opened("/toktier")
    totals = page.totals()
    assert totals["Requests"].splitlines()[0] == "420"
    assert totals["Hit rate"].splitlines() == ["42.9 %", "soft hits apart: 28.6 %"]
    assert totals["Tokens saved"].splitlines()[0] == "16,800"
    assert totals["Tokens prefilled"].splitlines()[0] == "25,200"
    assert totals["First byte"].splitlines()[0] == "≤ 50 ms"
    assert totals["Router's own time"].splitlines()[0] == "≤ 0.5 ms"
    assert totals["Records"].splitlines() == ["40 rows", "123.5 kB"]
    assert page.rows("upstreams")[0] == [
        *("0", "http://127.0.0.1:8080", "up answers, and is used", "tiny", "1", "none")
    ]
    assert page.rows("upstreams")[1][2].startswith("down")
    assert page.rows("upstreams")[1][5] == "connection refused"
    assert page.rows("slots") == [
        ["0", "0", "known", "107 (7 guessed)", "2 requests, 1 waiting", "held", "5", "1 min ago"],
        ["0", "1", "empty", "0", "idle", "no", "0", "never"],
        ["1", "0", "unknown", "30", "idle", "no", "1", "1 h ago"],
    ]
    words = page.rows("words")
    assert ["What it reused", "hit: 10 tokens or more were reused", "180"] in words
    assert ["Refused before a route", "invalid_api_key: no key, or none of those that are accepted", "7"] in words
    missing = page.text("#missing").splitlines()
    assert missing[0] == "KV events are switched off"
    assert missing[1] == "Records are not written: the disk or the quota is full. Requests go on."
    assert "1,234 rows of records were given up." in missing
    assert page.text("#tokens-told") == "In the last hour 16,800 tokens were saved and 25,200 prefilled."
    assert page.text("#rate-told").endswith("180 of 420 measured requests were hits (42.9 %).")
    assert page.errors() == []
    # What a person who hears the page needs: a name for each table, chart, column and field.
    assert page.run("return [...document.querySelectorAll('table')].every(t => t.caption && t.caption.innerText)")
    assert page.run("return [...document.querySelectorAll('th')].every(h => h.scope === 'col')")
    assert page.run(
        "return [...document.querySelectorAll('svg[role=img]')].map("
        "s => document.getElementById(s.getAttribute('aria-labelledby')).innerText.length > 20)"
    ) == [True, True]
    assert page.run("return [...document.querySelectorAll('input')].every(i => i.labels.length === 1)")


def test_the_series_are_drawn(server: PageServer, opened: Callable[..., Page]) -> None:
    page = opened()
    empty = page.picture("#tokens")
    paint = {"saved": page.colour("--saved"), "prefilled": page.colour("--prefilled"), "rate": page.colour("--rate")}

    def painted(picture: np.ndarray[Any, Any], what: str) -> np.ndarray[Any, Any]:
        return np.all(picture == paint[what], axis=2)

    assert not painted(empty, "saved").any()
    busy_hour(server)
    page = opened()
    tokens, rate = page.picture("#tokens"), page.picture("#rate")
    height, width = tokens.shape[:2]
    for what in ("saved", "prefilled"):
        columns = painted(tokens, what).any(axis=0)
        # Half an hour of an hour: bars from the middle to the right, none before.
        assert columns[width // 2 + 60 :].mean() > 0.4
        assert not columns[: width // 3].any()
    # Saved ones stand on the ground, prefilled ones on them.
    rows = {what: np.nonzero(painted(tokens, what).any(axis=1))[0] for what in ("saved", "prefilled")}
    assert rows["saved"].max() > 0.8 * height
    assert rows["prefilled"].min() < rows["saved"].min()
    line = painted(rate, "rate")
    assert line[:, width // 2 + 60 :].any(axis=0).mean() > 0.3
    assert not line[:, : width // 3].any()
    assert page.picture("#slots").std() > 5
    # The week has the same requests in one hour.
    page.run("document.querySelector('input[value=coarse]').click()")
    assert page.text("#rate-told").startswith("In the last week 180 of 420 measured requests")
    assert page.run("return document.querySelectorAll('#tokens rect.saved').length") == 1


def test_the_numbers_follow_the_router(server: PageServer, opened: Callable[..., Page]) -> None:
    page = opened()
    assert page.totals()["Requests"] == "0"
    assert page.totals()["Hit rate"].startswith("none yet")
    assert page.rows("words") == [["No request yet", "", ""]]
    page.run("document.querySelector('h1').dataset.mark = 'the same page'")
    server.stats.add(request())
    server.slots[1] = SlotRow(upstream=0, slot=1, state=SlotState.KNOWN, tokens=4321, sure=4321, last_use=NOW)
    server.upstreams[1] = UpstreamRow(number=1, name="http://127.0.0.1:8081", state=UpstreamState.UP, model="back")
    # The documents are asked for one by one: what is drawn first may lie between the changes above.
    page.until(
        lambda: (
            (page.totals()["Requests"], page.rows("slots")[1][3], page.rows("upstreams")[1][3])
            == ("1", "4,321", "back")
        )
    )
    assert page.totals()["Hit rate"].startswith("100.0 %")
    assert page.run("return document.querySelector('h1').dataset.mark") == "the same page"
    assert page.errors() == []


def test_names_of_others_are_text(server: PageServer, opened: Callable[..., Page]) -> None:
    server.upstreams = [
        UpstreamRow(number=0, name=HOSTILE, state=UpstreamState.REFUSED, model=HOSTILE, notes=[HOSTILE, "</ul>"])
    ]
    server.parts = {"missing": [HOSTILE], "kv_events": {HOSTILE: 1}, "guards": {f"refused_{HOSTILE}": 3}}
    server.stats.add(request(route=HOSTILE))
    server.stats.add(request(route="__proto__"))
    page = opened()
    (row,) = page.rows("upstreams")
    assert (row[1], row[3]) == (HOSTILE, HOSTILE)
    assert row[5].splitlines() == [HOSTILE, "</ul>"]
    assert HOSTILE in page.text("#missing")
    assert ["Route", HOSTILE, "1"] in page.rows("words")
    assert ["Route", "__proto__", "1"] in page.rows("words")
    harm = "return [window.harmed, document.images.length, document.scripts.length]"
    assert page.run(harm) == [None, 0, 2]
    assert page.errors() == []


def test_a_router_that_is_away_is_told_and_the_page_goes_on_when_it_is_back(
    server: PageServer, opened: Callable[..., Page]
) -> None:
    server.stats.add(request())
    page = opened()
    server.stop()
    try:
        page.ask_now()
        page.until(lambda: "has not answered since" in page.text("#notice"))
        assert page.totals()["Requests"] == "1"  # what was known is still there, and said to be older
        assert "what is shown is older" in page.text("#notice")
        server.stats.add(request())
    finally:
        server.start()
    page.until(lambda: page.totals()["Requests"] == "2")
    assert page.text("#notice") == ""
    server.broken = {"schema": "something else"}
    page.ask_now()
    page.until(lambda: "cannot be shown" in page.text("#notice"))
    assert page.totals()["Requests"] == "2"


def test_a_key_is_asked_for_and_kept_in_the_tab_alone(server: PageServer, browser: Any) -> None:
    server.key = "k3y-of-the-test"
    server.stats.add(request())
    page = Page(browser, server.url + "/")

    def give(key: str) -> None:
        browser.find_element("id", "key").send_keys(key)
        browser.find_element("css selector", "#ask button").click()

    page.until(lambda: page.text("#notice") == "The router asks for a key.")
    assert page.run("return document.getElementById('main').hidden")
    give("wrong")
    page.until(lambda: page.text("#notice") == "The router does not take this key.")
    give("schlüssel")
    page.until(lambda: page.text("#notice").startswith("This cannot be a key"))
    give(server.key)
    page.shown()
    assert page.totals()["Requests"] == "1"
    assert page.text("#notice") == ""
    assert not page.run("return document.getElementById('ask').checkVisibility()")
    assert page.run("return Object.values(sessionStorage)") == [server.key]
    assert page.run("return [localStorage.length, document.cookie]") == [0, ""]
    assert server.key not in browser.current_url + browser.page_source + "".join(server.asked)
    browser.refresh()
    page.shown()  # without being asked again
    server.key = "another"
    page.ask_now()
    page.until(lambda: page.text("#notice") == "The router does not take this key.")
    assert page.run("return sessionStorage.length") == 0


def test_it_is_read_on_a_phone_and_in_the_dark(server: PageServer, browser: Any, opened: Callable[..., Page]) -> None:
    busy_hour(server)
    light = opened().picture("#slots")
    dark_mode = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark_mode)
    phone = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        page = opened()
        assert page.run("return [innerWidth, document.documentElement.scrollWidth]") == [360, 360]
        fits = "const t = document.getElementById('words'); return t.scrollWidth <= t.parentNode.clientWidth"
        assert page.run(fits)  # the table of words wraps; those of numbers are moved sideways
        dark = page.picture("#tokens")
        assert light.mean() > 200  # ink on paper
        assert dark.mean() < 80
        assert np.all(dark == page.colour("--saved"), axis=2).any()
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_the_decoder_of_screenshots_is_right(tmp_path: Path, browser: Any) -> None:
    """Against the browser's own: a picture of known colours."""
    browser.get("data:text/html,<body style='margin:0;background:linear-gradient(90deg,%23ff0000 50%,%230000ff 50%)'>")
    found = pixels(browser.get_screenshot_as_png())
    assert found[5, 5].tolist() == [255, 0, 0]
    assert found[-5, -5].tolist() == [0, 0, 255]
