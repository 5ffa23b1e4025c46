# SPDX-License-Identifier: MIT
"""The site: built by docs/build.sh, and every page of it opened in a browser, narrow and wide.

No page writes an error to the console or is wider than its window, the search finds what a reader would type, and the
replayed run answers its slider. Exit status 77 (skipped) where there is no chromium with its driver, or PyPI cannot be
reached.
"""
import argparse
import html
import pathlib
import re
import shutil
import subprocess
import sys
import time
import urllib.parse

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "tests" / "support"))
from environment import programs_of, skip  # noqa: E402  (found there)

SITE = CHECKOUT / "build" / "docs" / "site"
DRIVER = "selenium~=4.27"
WIDTHS = (400, 1280)
SECONDS_TO_BUILD = 120
# What a reader types. One of the first results must have it, as it is written here.
SEARCHES = ("block_verification", "Algorithm 1", "temperature")


def browser():
    from selenium import webdriver
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def set_width(driver, width):
    # A window has a least width, so the page's is set.
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                           {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600})


def faults_of_pages(driver, pages):
    for width in WIDTHS:
        set_width(driver, width)
        for page in pages:
            driver.get(page.as_uri())
            name = f"{page.relative_to(SITE)} at {width} pixels"
            for entry in driver.get_log("browser"):
                if entry["level"] == "SEVERE":
                    yield f"{name} writes {entry['message']}"
            wide = driver.execute_script("return document.documentElement.scrollWidth")
            if wide > width:
                yield f"{name} is {wide} pixels wide"
            broken = driver.execute_script("return [...document.images].filter(i => !i.complete || i.naturalWidth === 0).map(i => i.src)")
            if broken:
                yield f"{name} lacks the pictures {broken}"


def faults_of_search(driver):
    from selenium.webdriver.common.by import By
    set_width(driver, 1280)
    for words in SEARCHES:
        driver.get((SITE / "index.html").as_uri())
        box = driver.find_element(By.CSS_SELECTOR, "input.md-search__input")
        driver.execute_script("arguments[0].focus()", box)
        box.send_keys(words)
        pages = []
        for _ in range(100):  # twenty seconds: the index is read first
            time.sleep(0.2)
            links = [a.get_attribute("href") for a in driver.find_elements(By.CSS_SELECTOR, "a.md-search-result__link")]
            pages = list(dict.fromkeys(re.sub("[?#].*$", "", link) for link in links))[:5]
            if any(words in html.unescape(pathlib.Path(urllib.parse.unquote(page.removeprefix("file://"))).read_text()) for page in pages):
                break
        else:
            yield f"searching for {words} finds {pages}, none of which has it"


def faults_of_replay(driver):
    """The slider answers: with more requests at once, fewer drafts are verified, and the text says so."""
    def state(load):
        slider = "const s = document.getElementById('replay-load'); s.value = arguments[0]; s.dispatchEvent(new Event('input'));"
        driver.execute_script(slider, load)
        return driver.execute_script("return [document.querySelectorAll('.replay-token.unverified').length,"
                                     " document.querySelector('.replay-figures').textContent]")
    driver.get((SITE / "replay.html").as_uri())
    (few, first), (many, last) = state(0), state(8)
    if not few < many:
        yield f"replay.html leaves {few} drafts unverified for one request and {many} for 256, expected more"
    if first == last:
        yield f"replay.html says \"{first}\" for one request and for 256"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--environment", type=pathlib.Path, required=True)
    parser.add_argument("--screenshots", type=pathlib.Path, help="folder for a picture of each page of the navigation")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        skip("docs.site", "there is no chromium with chromedriver (Debian: chromium-driver)")
    if not arguments.inside:
        subprocess.run([CHECKOUT / "docs" / "build.sh"], check=True)  # which fetches what it needs
        began = time.monotonic()
        subprocess.run([CHECKOUT / "docs" / "build.sh"], check=True)
        took = time.monotonic() - began
        if took > SECONDS_TO_BUILD:
            sys.exit(f"site: building took {took:.0f} s, at most {SECONDS_TO_BUILD} are asked")
        # This script again, by a Python that has the browser's driver.
        python = programs_of("docs.site", arguments.environment, DRIVER) / "python"
        sys.exit(subprocess.run([python, *sys.argv, "--inside"]).returncode)
    pages = sorted(page for page in SITE.rglob("*.html") if page.name != "404.html")  # which a server shows, from its root
    driver = browser()
    try:
        faults = [*faults_of_pages(driver, pages), *faults_of_search(driver), *faults_of_replay(driver)]
        if arguments.screenshots:
            arguments.screenshots.mkdir(parents=True, exist_ok=True)
            for width in WIDTHS:
                set_width(driver, width)
                for page in sorted(SITE.glob("*.html")) + [SITE / "reference/verify.html", SITE / "reference/index.html"]:
                    driver.get(page.as_uri())
                    driver.save_screenshot(str(arguments.screenshots / f"{page.stem}_{width}.png"))
    finally:
        driver.quit()
    print(f"{len(pages)} pages at {' and '.join(map(str, WIDTHS))} pixels, {len(SEARCHES)} searches: {len(faults)} faults")
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


main()
