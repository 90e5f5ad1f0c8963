"""The page of `kformer serve` in Chromium: what a person does there, and what can be seen."""

import json
import re

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait


class ShownPage:
    """The page at a URL, opened. `page[ID]` is an element.

    Args:
        chrome: The driver of Chromium, with the logs `browser` and `performance`.
        url: Where the page is.
    """

    def __init__(self, chrome, url):
        self.chrome = chrome
        chrome.get(url)
        self.wait(lambda: self["version"].text or self["error"].text)

    def __getitem__(self, name):
        return self.chrome.find_element(By.ID, name)

    def all(self, selector):
        return self.chrome.find_elements(By.CSS_SELECTOR, selector)

    def script(self, expression, *arguments):
        """The value of an expression in JavaScript; arguments are called `arguments[0]` and so on."""
        return self.chrome.execute_script(f"return {expression}", *arguments)

    def command(self, name, **arguments):
        """A command of Chromium's own protocol."""
        return self.chrome.execute_cdp_cmd(name, arguments)

    def wait(self, condition):
        return WebDriverWait(self.chrome, 20, poll_frequency=0.05).until(lambda _: condition())

    def type(self, text):
        """Puts any characters where the cursor is, as a keyboard does."""
        self["text"].send_keys(Keys.END)
        self.command("Input.insertText", text=text)

    def translate(self, text):
        """Replaces the text, and waits for the translation and all that belongs to it."""
        self["text"].send_keys(Keys.CONTROL, "a")
        self["text"].send_keys(Keys.DELETE)
        self.wait(lambda: not self["answer"].is_displayed())
        self.type(text)
        self.wait(lambda: self["answer"].is_displayed() and (self["found"].text or not self["others"].is_displayed()))

    def tokens(self, side):
        return self.all(f"#{side} [role=option]")

    def texts(self, side):
        return [token.get_property("textContent") for token in self.tokens(side)]

    def point(self, token):
        ActionChains(self.chrome).move_to_element(token).perform()

    def press(self, *keys):
        ActionChains(self.chrome).send_keys(*keys).perform()

    def focused(self):
        """The text of the token that has the focus."""
        return self.script("document.activeElement.textContent")

    def links(self, side):
        """Text and weight of each token of a side that is linked with the one that is shown."""
        pair = "(each) => [each.textContent, each.style.getPropertyValue('--weight')]"
        linked = self.script(f"[...document.querySelectorAll(arguments[0])].map({pair})", f"#{side} .linked")
        return {text: pytest.approx(float(root) ** 2) for text, root in linked}

    def appear(self, media="screen", scheme="light", width=1200):
        """Says what the page is shown on.

        Args:
            media: screen or print.
            scheme: light or dark.
            width: Of the window, in CSS pixels.
        """
        self.command(
            "Emulation.setEmulatedMedia",
            media=media,
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)

    def color(self, element, name):
        """A colour as red, green and blue from 0 to 1."""
        value = self.script("getComputedStyle(arguments[0])[arguments[1]]", element, name)
        return [int(part) / 255 for part in re.findall(r"\d+", value)[:3]]

    def complaints(self):
        """What Chromium has written into its console since the last time."""
        return [entry["message"] for entry in self.chrome.get_log("browser")]

    def requested(self):
        """The addresses that have been asked since the last time."""
        messages = [json.loads(entry["message"])["message"] for entry in self.chrome.get_log("performance")]
        sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in sent]
