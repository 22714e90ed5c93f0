"""The page at /, in headless Chromium, with the shipped detector."""

import base64
import contextlib
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import PIL.Image
import pytest
from chromium import OPTIONS, chromium_path
from services import Start, client_of

from lensbox.common.samples import save_photos
from lensbox.export.pipeline import save_artifact
from lensbox.model import load_detector
from lensbox.runtime.loading import load_artifact

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Route, expect
else:
    with contextlib.suppress(ModuleNotFoundError):  # without playwright the marker deselects these tests
        from playwright.sync_api import expect

pytestmark = pytest.mark.browser

PATIENCE = 30_000  # milliseconds
HOPPER, ASTRONAUT = "grace_hopper.jpg", "astronaut.png"


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of the shipped face detector."""
    path = tmp_path_factory.mktemp("artifact") / "detector.pt"
    save_artifact(load_detector(None), path)
    return path


@pytest.fixture(scope="module")
def client(shipped: Path) -> Iterator[httpx.Client]:
    """A client of a service over the shipped detector."""
    with client_of(shipped) as client:
        yield client


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("photos")
    return {path.name: path for path in save_photos(folder)}


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=chromium_path(), args=OPTIONS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: "Browser", client: httpx.Client) -> Iterator["Page"]:
    """A new page in a new session. Fails if the page reports an error or requests another host."""
    expect.set_options(timeout=PATIENCE)
    context = browser.new_context(base_url=str(client.base_url))
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    # The test chooses files. Register early, because the browser intercepts choosers only after a delay.
    page.on("filechooser", lambda _: None)
    elsewhere: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: elsewhere.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if "Policy" in message.text else None)
    page.goto("/")
    yield page
    context.close()
    assert errors == []
    assert [url for url in elsewhere if not url.startswith((str(client.base_url), "blob:"))] == []


def cards(page: "Page", text: str = "") -> "Locator":
    return page.locator(".card", has_text=text)


def choose(page: "Page", *paths: Path) -> None:
    page.locator("#files").set_input_files(paths)


def summary(page: "Page", name: str) -> "Locator":
    return cards(page, name).locator(".summary")


def alert(page: "Page", name: str) -> "Locator":
    return cards(page, name).get_by_role("alert")


def move(page: "Page", slider: str, value: float) -> None:
    page.locator(slider).fill(str(value))


def count_of(page: "Page", name: str) -> int:
    """Return the number of detections that a picture's card shows."""
    text = summary(page, name).inner_text()
    found = re.match(r"(\d+|Nothing) found", text)
    assert found, text
    return 0 if found[1] == "Nothing" else int(found[1])


def test_shows_detections_of_a_dropped_picture(
    page: "Page", photos: dict[str, Path], client: httpx.Client
) -> None:
    expect(page.locator("#about")).to_contain_text("face_detector · one class · on cpu")
    transfer = page.evaluate_handle(
        """([name, data]) => {
            const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
            const transfer = new DataTransfer();
            transfer.items.add(new File([bytes], name, { type: "image/jpeg" }));
            return transfer;
        }""",
        [HOPPER, base64.b64encode(photos[HOPPER].read_bytes()).decode()],
    )
    page.dispatch_event("body", "dragover", {"dataTransfer": transfer})
    expect(page.locator("body")).to_have_class("dropping")
    page.dispatch_event("body", "drop", {"dataTransfer": transfer})
    expect(page.locator("body")).not_to_have_class("dropping")

    expect(summary(page, HOPPER)).to_have_text(re.compile(r"^1 found · 512 \u00d7 600 · \d+ ms$"))
    expect(page.locator("#news")).to_have_text(f"{HOPPER}: 1 found")
    expect(page.locator("#empty")).to_be_hidden()
    (found,) = client.post("/v1/detect", content=photos[HOPPER].read_bytes()).json()["detections"]
    canvas = cards(page, HOPPER).locator("canvas")
    expect(canvas).to_have_attribute("aria-label", f"{HOPPER}: 1 found, {100 * found['score']:.0f}%")
    cards(page, HOPPER).locator("summary").click()
    row = cards(page, HOPPER).locator("tbody td").all_inner_texts()
    assert [float(text) for text in row[1:]] == pytest.approx([found["score"], *found["box"]], abs=0.06)

    # The middle of the box's upper edge has the frame's color.
    x1, y1, x2, _ = found["box"]
    edge = canvas.evaluate(
        "(canvas, [x, y]) => [...canvas.getContext('2d').getImageData(x, y, 1, 1).data]",
        [round((x1 + x2) / 2), round(y1)],
    )
    assert edge == [57, 255, 120, 255]


def test_photographs_are_turned_upright_and_reduced(page: "Page", tmp_path: Path) -> None:
    turned = PIL.Image.Exif()
    turned[0x0112] = 6
    picture = PIL.Image.new("RGB", (1200, 800), (20, 20, 20))
    picture.paste((250, 10, 10), (0, 0, 100, 100))
    path = tmp_path / "turned.jpg"
    picture.save(path, exif=turned)
    choose(page, path)
    expect(summary(page, "turned.jpg")).to_contain_text("800 \u00d7 1200")
    canvas = cards(page, "turned.jpg").locator("canvas")
    corner = "(canvas) => [...canvas.getContext('2d').getImageData(canvas.width - 50, 50, 1, 1).data]"
    red, green, _, _ = canvas.evaluate(corner)
    assert red > 200 > green
    PIL.Image.new("L", (8000, 100)).save(path)
    choose(page, path)
    newest = cards(page, "turned.jpg").first
    expect(newest.locator(".summary")).to_contain_text("8000 \u00d7 100")
    assert newest.locator("canvas").evaluate("(canvas) => [canvas.width, canvas.height]") == [2048, 26]


def test_sliders_repeat_requests_and_can_be_reset(page: "Page", photos: dict[str, Path]) -> None:
    choose(page, photos[HOPPER], photos[ASTRONAUT])
    for name in photos:
        expect(summary(page, name)).to_contain_text("1 found")
    assert cards(page).locator("h2").all_inner_texts() == [HOPPER, ASTRONAUT]

    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    with page.expect_response(re.compile(r"score_threshold=0\.99")):
        for value in (0.7, 0.8, 0.9, 0.99):  # a slow machine sends requests for earlier values, too
            move(page, "#score", value)
    for name in photos:
        expect(summary(page, name)).to_contain_text("Nothing found")
    assert all("score_threshold=" in url and "iou_threshold" not in url for url in asked)
    assert "score_threshold=0.99" in asked[-1]
    expect(page.locator("#score-value")).to_have_text("0.99")

    move(page, "#score", 0.01)
    expect(summary(page, HOPPER)).not_to_contain_text("Nothing")
    many = count_of(page, HOPPER)
    assert many > 1
    move(page, "#iou", 0)
    expect(summary(page, HOPPER)).not_to_contain_text(f"{many} found")
    assert 0 < count_of(page, HOPPER) < many

    page.get_by_role("button", name=re.compile("^Reset to the detector.s defaults$")).click()
    for name in photos:
        expect(summary(page, name)).to_contain_text("1 found")
    assert "threshold" not in asked[-1]


def test_shows_error_messages(page: "Page", photos: dict[str, Path], tmp_path: Path) -> None:
    bad = tmp_path / "bad.jpg"
    bad.write_text("hello")
    choose(page, bad, photos[HOPPER])
    error = alert(page, "bad.jpg")
    expect(error).to_contain_text("The image must be one of JPEG, PNG, WebP, BMP, GIF, got the text 'hello'")
    expect(error.locator("small")).to_have_text(re.compile(r"^Request [0-9a-f]{32}$"))
    expect(summary(page, HOPPER)).to_contain_text("1 found")

    page.context.set_offline(True)
    move(page, "#score", 0.3)
    expect(alert(page, HOPPER)).to_have_text("The service cannot be reached. Is it still running?")
    page.context.set_offline(False)
    move(page, "#score", 0.4)
    expect(summary(page, HOPPER)).to_contain_text("1 found")
    expect(alert(page, HOPPER)).to_be_hidden()


def test_retries_while_the_service_is_overloaded(page: "Page", photos: dict[str, Path]) -> None:
    refused = 0

    def busy(route: "Route") -> None:
        nonlocal refused
        if refused == 2:
            route.continue_()
            return
        refused += 1
        route.fulfill(status=503, headers={"Retry-After": "0"}, json={"detail": "full", "code": "overloaded"})

    page.route("**/v1/detect*", busy)
    choose(page, photos[HOPPER])
    expect(summary(page, HOPPER)).to_contain_text("1 found")
    assert refused == 2


@pytest.fixture
def guarded_url(start_service: Start, shipped: Path, tmp_path: Path) -> str:
    """Start a service that requires a key. Return its URL."""
    keys = tmp_path / "keys"
    keys.write_text("the-right-key-of-a-browser\n")
    service = start_service(lambda: load_artifact(shipped), api_keys_file=keys)
    return str(service.client.base_url)


def test_asks_for_an_api_key_after_401(browser: "Browser", guarded_url: str, photos: dict[str, Path]) -> None:
    with browser.new_context(base_url=guarded_url) as context:
        page = context.new_page()
        page.goto("/")
        field = page.get_by_label("This service requires an API key.")
        expect(field).to_be_focused()
        choose(page, photos[HOPPER])
        for key, message in (("the-wrong-key", "got an unknown key"), ("the-right-key-of-a-browser", "face")):
            field.fill(key)
            page.keyboard.press("Enter")
            expect(page.locator("#about")).to_contain_text(message)
        expect(summary(page, HOPPER)).to_contain_text("1 found")
        expect(field).to_be_hidden()
        # The key is kept until the tab is closed.
        page.reload()
        expect(page.locator("#about")).to_contain_text("face_detector")
        assert page.evaluate("Object.keys(localStorage).length + document.cookie.length") == 0
        other = context.new_page()
        other.goto("/")
        expect(other.locator("#key")).to_be_visible()


def test_rejects_a_key_with_invalid_characters(browser: "Browser", guarded_url: str) -> None:
    with browser.new_context(base_url=guarded_url) as context:
        page = context.new_page()
        # A browser that blocks storage.
        page.add_init_script(
            "Object.defineProperty(window, 'sessionStorage', { get() { throw new DOMException('denied'); } })"
        )
        page.goto("/")
        field = page.get_by_label("This service requires an API key.")
        expect(field).to_be_focused()
        for key in ("la-cl\u00e9-du-navigateur", "the right key"):
            field.fill(key)
            page.keyboard.press("Enter")
            assert "ASCII" in field.evaluate("(field) => field.validationMessage")
            expect(field).to_be_visible()
            expect(page.locator("#about")).to_contain_text("key")
        field.fill(" the-right-key-of-a-browser ")
        page.keyboard.press("Enter")
        expect(page.locator("#about")).to_contain_text("face_detector")


def test_reports_an_answer_of_another_server(page: "Page") -> None:
    page.route("**/v1/model", lambda route: route.fulfill(status=200, body="<title>Sign in</title>"))
    page.reload()
    expect(page.locator("#about")).to_have_text("The server at this address is not a Lensbox service.")
    page.unroute("**/v1/model")
    expect(page.locator("#about")).to_contain_text(
        "face_detector"
    )  # retries, because the answer may have come from a proxy


def test_reports_a_deleted_file(page: "Page", photos: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / HOPPER
    path.write_bytes(photos[HOPPER].read_bytes())
    choose(page, path)
    expect(summary(page, HOPPER)).to_contain_text("1 found")
    path.unlink()
    move(page, "#score", 0.5)
    expect(alert(page, HOPPER)).to_contain_text("The file cannot be read.")
    # The label no longer names the previous detections.
    expect(cards(page, HOPPER).locator("canvas")).to_have_attribute("aria-label", HOPPER)


def keep_streams(page: "Page") -> None:
    """Record the page's camera tracks in `window.tracks`."""
    page.evaluate(
        """() => {
            const real = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
            window.tracks = [];
            navigator.mediaDevices.getUserMedia = async (wanted) => {
                const stream = await real(wanted);
                window.tracks.push(...stream.getTracks());
                return stream;
            };
        }"""
    )


def test_sends_one_camera_frame_at_a_time(page: "Page") -> None:
    in_progress = most = frames = 0

    def count(step: int, request: Any) -> None:
        nonlocal in_progress, most, frames
        if "/v1/detect" in request.url:
            in_progress += step
            most = max(most, in_progress)
            frames += step > 0

    page.on("request", functools.partial(count, 1))
    page.on("requestfinished", functools.partial(count, -1))
    keep_streams(page)
    page.get_by_role("button", name="Start the camera").click()
    camera = summary(page, "Camera")
    expect(camera).to_have_text(re.compile(r"found · \d+ \u00d7 \d+ · \d+ ms · [\d.]+ a second$"))
    expect(camera).not_to_have_text(camera.inner_text())
    page.evaluate(
        """() => {
            Object.defineProperty(document, "hidden", { value: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    expect(page.get_by_role("button", name="Start the camera")).to_have_attribute("aria-pressed", "false")
    assert frames >= 2
    assert most == 1
    assert page.evaluate("window.tracks.map((track) => track.readyState)") == ["ended"]


_NO_CAMERA = """() => {
    const error = new DOMException("", "NotFoundError");
    navigator.mediaDevices.getUserMedia = () => Promise.reject(error);
}"""
_NO_CODEC = "() => { HTMLMediaElement.prototype.play = () => Promise.reject(new Error('no codec')); }"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (_NO_CAMERA, "", "No camera found."),
        ("", "window.tracks.forEach((track) => track.stop())", "The camera is gone"),
        (_NO_CODEC, "", "The camera cannot be used: no codec"),
    ],
    ids=["none", "unplugged", "no codec"],
)
def test_releases_a_camera_that_fails(page: "Page", before: str, after: str, message: str) -> None:
    keep_streams(page)
    if before:
        page.evaluate(before)
    page.get_by_role("button", name="Start the camera").click()
    if after:
        expect(summary(page, "Camera")).to_contain_text("found")
        page.evaluate(after)
    expect(alert(page, "Camera")).to_contain_text(message)
    expect(page.get_by_role("button", name="Start the camera")).to_be_visible()
    assert page.evaluate("window.tracks.every((track) => track.readyState === 'ended')")


def test_works_with_the_keyboard_only(page: "Page", photos: dict[str, Path]) -> None:
    expect(page.locator("#thresholds")).to_be_enabled()
    order = []
    for _ in range(5):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.id"))
    assert order == ["files", "camera", "score", "iou", "reset"]
    page.locator("#files").focus()
    outline = page.locator("label[for=files]").evaluate("(label) => getComputedStyle(label).outlineStyle")
    assert outline == "solid"
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files(photos[HOPPER])
    expect(summary(page, HOPPER)).to_contain_text("1 found")
    page.locator("#score").focus()
    page.keyboard.press("End")
    expect(summary(page, HOPPER)).to_contain_text("Nothing found")
    page.get_by_role("button", name=f"Remove {HOPPER}").focus()
    page.keyboard.press("Enter")
    expect(cards(page)).to_have_count(0)
    expect(page.locator("#empty")).to_be_visible()
    expect(page.locator("#files")).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_fits_the_screen_with_readable_contrast(
    page: "Page", photos: dict[str, Path], tmp_path: Path, width: int, scheme: Any
) -> None:
    bad = tmp_path / "a_name_without_any_place_to_break_it_that_is_longer_than_a_phone_is_wide.jpg"
    bad.write_text("hello")
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)
    choose(page, photos[HOPPER], bad)
    expect(summary(page, HOPPER)).to_contain_text("1 found")
    expect(alert(page, "a_name")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    texts = ("h1", "#about", ".hint >> visible=true", "label[for=files]", "#camera", ".summary", ".error")
    for selector in texts:
        contrast = _contrast(page.locator(selector).locator("visible=true").first)
        assert contrast >= 4.5, (selector, contrast)  # WCAG 2, level AA
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (_luminance(_color(back)) < 0.1) == (scheme == "dark")


def _contrast(element: "Locator") -> float:
    """Return the contrast of the text to its background, by WCAG 2's formula."""
    ink, back = element.evaluate(
        """(element) => {
            const ink = getComputedStyle(element).color;
            let back = "rgba(0, 0, 0, 0)";
            for (let at = element; at && back === "rgba(0, 0, 0, 0)"; at = at.parentElement) {
                back = getComputedStyle(at).backgroundColor;
            }
            return [ink, back];
        }"""
    )
    light, dark = sorted((_luminance(_color(text)) for text in (ink, back)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _color(text: str) -> list[float]:
    found = re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", text)
    assert found, text
    return [int(value) / 255 for value in found.groups()]


def _luminance(color: list[float]) -> float:
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in color]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
