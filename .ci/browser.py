"""Press through the page of the scheduler in a real browser: python .ci/browser.py

It drives a headless Chromium by the protocol of WebDriver, with nothing but the standard library, and looks: each
challenge is done in the fewest moves that are known, by pressing buttons; each step reads as Python says it; both
languages, back and forward, the address, and no width from 390 to 1,600 pixels at which the page is too wide. Exit
codes: 0 fine, or no browser is at hand, which it says; 1 something is wrong.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP))

from chapter10.lab.scheduler import page  # noqa: E402
from chapter10.lab.scheduler.packing import unpack  # noqa: E402
from chapter10.lab.scheduler.play import CHALLENGES, play, shortest  # noqa: E402

SECONDS = 60


class Browser:
    """One window of a Chromium; a call that the browser refuses is an `OSError`."""

    def __init__(self, chromium: str, driver: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._process = subprocess.Popen(
            [driver, f"--port={self._port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--lang=en"]
        wanted = {
            "goog:chromeOptions": {"binary": chromium, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        self._session = ""
        end = time.monotonic() + SECONDS
        while not self._session:
            try:
                made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
                self._session = f"/session/{made['sessionId']}"
            except urllib.error.URLError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def close(self) -> None:
        """End the browser."""
        if self._session:
            self._ask("DELETE", self._session, None)
        self._process.terminate()
        self._process.wait()

    def open(self, address: str) -> None:
        """Show a page."""
        self._ask("POST", self._session + "/url", {"url": "about:blank"})
        self._ask("POST", self._session + "/url", {"url": address})

    def run(self, script: str, *arguments: object) -> Any:
        """Run a script in the page and return what it returns."""
        return self._ask("POST", self._session + "/execute/sync", {"script": script, "args": list(arguments)})

    def width(self, pixels: int) -> None:
        """Make the window so wide."""
        self._ask("POST", self._session + "/window/rect", {"width": pixels, "height": 900})

    def complaints(self) -> list[str]:
        """Return what the page has reported to the console."""
        return [line["message"] for line in self._ask("POST", self._session + "/se/log", {"type": "browser"})]

    def _ask(self, method: str, path: str, body: object) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}{path}", data, method=method)
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return json.load(answer)["value"]


PRESS = "document.querySelector(`#buttons [data-key=${JSON.stringify(arguments[0])}]`).click()"
STORY = "return [...document.querySelectorAll('#story button')].map(one => one.textContent)"


def main() -> int:
    """Look at the page and return the exit code."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        print("no chromium and chromedriver are at hand: the page was not looked at in a browser")
        return 0
    path = TOP / "reports" / page.PAGE
    text = path.read_text(encoding="utf-8")
    data = json.loads(text.split('id="data">', 1)[1].split("</script>", 1)[0])
    _, without = unpack(data)
    wrong: list[str] = []

    def see(what: str, found: object, expected: object) -> None:
        if found != expected:
            wrong.append(f"{what}: {found!r} instead of {expected!r}")

    browser = Browser(chromium, driver)
    try:
        for number, challenge in enumerate(CHALLENGES):
            fewest, *names = data["challenges"][number]
            name = min(names, key=lambda name: len(shortest(without[name], challenge)))
            made = shortest(without[name], challenge)
            browser.open(f"{path.as_uri()}#{name}/")
            for move in made:
                browser.run(PRESS, f"{move.actor},{move.verb},{move.attempt},{move.number}")
            done = browser.run("return [...document.querySelectorAll('#challenges .done')].map(one => one.textContent)")
            see(f"challenge {number + 1}", done[number], f"✓ {fewest}")
            address = page.address_of(without[name], made)
            see("the address", browser.run("return location.hash"), f"#{name}/{address}")
            for language in ("en", "zh"):
                said = [page.sentence(turn, language) for turn in play(without[name], made)]
                shown = [line.partition(" ✗ ")[0] for line in browser.run(STORY)]
                see(f"the story in {language}", shown, said)
                browser.run("document.getElementById('lang').click()")
            browser.run("document.getElementById('back').click()")
            browser.run("document.getElementById('forward').click()")
            see("back and forward", browser.run("return location.hash"), f"#{name}/{address}")
        browser.open(path.as_uri())
        see("the story of the page", len(browser.run(STORY)), len(page.STORY))
        key = "document.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft', bubbles: true}))"
        browser.run(key.replace("document.dispatch", "document.body.dispatch"))
        see("the left arrow", browser.run("return location.hash").rpartition("/")[2], str(len(page.STORY) - 1))
        for pixels in (390, 768, 1024, 1600):
            browser.width(pixels)
            wide = browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            see(f"too wide at {pixels}", wide, 0)
        see("the console", browser.complaints(), [])
    finally:
        browser.close()
    print("\n".join(wrong) or "the three challenges, both languages, the address and four widths: as they must be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
