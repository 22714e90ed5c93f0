"""The page at /, over HTTP and in headless Chromium with the shipped detector; the documentation at /docs."""

import base64
import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from programs import CHROMIUM_OPTIONS, chromium_path
from serve_process import ServeProcess
from services import Start, client_of, problem_of
from waiting import PATIENCE, wait_until

import lensbox.serve
from lensbox.cli.samples import save_photos
from lensbox.runtime.detect.artifact import Artifact

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, expect
else:
    with contextlib.suppress(ModuleNotFoundError):  # without playwright the marker deselects these tests
        from playwright.sync_api import expect

FILES = sorted((Path(lensbox.serve.__file__).parent / "page").iterdir())
KEY = "the-right-key-of-a-browser"
# Drop or paste a JPEG file.
GIVE = """([event, data]) => {
    const transfer = new DataTransfer();
    const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
    transfer.items.add(new File([bytes], "photo.jpg", { type: "image/jpeg" }));
    const given = event === "drop"
        ? new DragEvent(event, { dataTransfer: transfer, bubbles: true })
        : new ClipboardEvent(event, { clipboardData: transfer, bubbles: true });
    document.body.dispatchEvent(given);
}"""


def test_serves_its_own_files_without_code_of_other_hosts(client: httpx.Client) -> None:
    for file in FILES:
        response = client.get("/" if file.name == "index.html" else f"/page/{file.name}")
        assert response.status_code == 200
        assert response.content == file.read_bytes()
        text = response.text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://\w|\bstyle=|\bon\w+=\"|(src|href)=\"/", text)
    for name in ("nothing.js", "..%2fcli.py"):
        assert problem_of(client.get(f"/page/{name}"))[:2] == (404, "not_found")


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    return next(path for path in save_photos(folder) if path.name == "grace_hopper.jpg")


@pytest.fixture(scope="module")
def service(shipped_path: Path) -> Iterator[httpx.Client]:
    with client_of(shipped_path) as client:
        yield client


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    from playwright.sync_api import sync_playwright

    expect.set_options(timeout=1000 * PATIENCE)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=chromium_path(), args=CHROMIUM_OPTIONS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: "Browser", service: httpx.Client) -> Iterator["Page"]:
    """A new page in a new session. Fails if the page reports an error or breaks its policy."""
    with browser.new_context(base_url=str(service.base_url)) as context:
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if "Policy" in message.text else None)
        page.goto("/")
        expect(page.locator("#about")).to_have_text("face_detector version 1 · on cpu")
        yield page
    assert errors == []


@pytest.mark.browser
@pytest.mark.parametrize("event", ["choose", "drop", "paste"])
def test_shows_boxes_over_a_picture(page: "Page", photo: Path, service: httpx.Client, event: str) -> None:
    if event == "choose":
        page.locator("#files").set_input_files(photo)
    else:
        page.evaluate(GIVE, [event, base64.b64encode(photo.read_bytes()).decode()])
    expect(page.get_by_label("Model")).to_be_hidden()  # there is one
    expect(page.locator("figure p")).to_have_text(re.compile(r"^1 found · 512 \u00d7 600 · \d+ ms$"))
    (found,) = service.post("/v1/detect", content=photo.read_bytes()).json()["detections"]
    expect(page.locator(".box")).to_have_text(f"{100 * found['score']:.0f}%")
    shown, picture = page.locator(".box").bounding_box(), page.locator("figure img").bounding_box()
    assert shown
    assert picture
    scale = picture["width"] / 512
    corner = [(shown[side] - picture[side]) / scale for side in ("x", "y")]
    size = [shown[side] / scale for side in ("width", "height")]
    x1, y1, x2, y2 = found["box"]
    assert [*corner, *size] == pytest.approx([x1, y1, x2 - x1, y2 - y1], abs=1)


@pytest.mark.browser
def test_shows_names_and_points_and_leaves_out_what_is_not_finite(
    page: "Page", photo: Path, service: httpx.Client
) -> None:
    points = {"eyes": {"shape": [3, 2], "kind": "points"}, "age": {"shape": [], "kind": "values"}}
    model = service.get("/v1/model").json() | {"classes": ["dog"], "extras": points}
    page.route("**/v1/models/face_detector", lambda route: route.fulfill(json=model))
    page.reload()
    dog = {"box": [1, 2, 3, 4], "score": 0.5, "label": "dog"}
    dog["extras"] = {"eyes": [[2, 3], [6, 4], [None, 1]], "age": 3.5}
    answer = {"width": 8, "height": 8, "detections": [dog, {**dog, "box": [1, 2, None, 4]}]}
    page.route("**/v1/models/face_detector/detect*", lambda route: route.fulfill(json=answer))
    page.locator("#files").set_input_files(photo)
    expect(page.locator(".box")).to_have_text(["dog 50%"])
    places = page.locator(".dot").evaluate_all("dots => dots.map((dot) => [dot.style.left, dot.style.top])")
    assert places == [["25%", "37.5%"], ["75%", "50%"]]


@pytest.mark.browser
def test_asks_again_with_moved_thresholds_and_shows_errors(page: "Page", photo: Path, tmp_path: Path) -> None:
    name = "a_name_without_any_place_to_break_it_that_is_longer_than_a_phone_is_wide.jpg"
    (tmp_path / name).write_text("hello")
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator("#files").set_input_files([photo, tmp_path / name])
    bad, good = page.locator("figure").nth(0), page.locator("figure").nth(1)
    expect(bad.locator("p")).to_contain_text("the image must be one of JPEG, PNG, WebP")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    backs = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        backs.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(backs) == 2
    expect(good.locator("p")).to_contain_text("1 found")
    page.locator("#score").fill("0.99")
    expect(good.locator("p")).to_contain_text("Nothing found")
    page.locator("#score").fill("0.01")
    expect(good.locator("p")).to_have_text(re.compile(r"^[2-9]|\d\d"))
    many = good.locator(".box").count()
    with page.expect_response(re.compile(r"score_threshold=0.01&iou_threshold=0&")):
        page.locator("#iou").fill("0")
    expect(good.locator(".box")).not_to_have_count(many)
    page.get_by_role("button", name=f"Remove {name}").click()
    expect(page.locator("figure")).to_have_count(1)


@pytest.mark.browser
def test_connects_again_and_sends_all_files_again(page: "Page", photo: Path) -> None:
    page.locator("#files").set_input_files([photo, photo])
    expect(page.locator("figure p")).to_have_text([re.compile("1 found")] * 2)
    page.route("**/v1/**", lambda route: route.abort())
    page.locator("#score").fill("0.99")
    expect(page.locator("#about")).to_have_text("The service cannot be reached.")
    expect(page.locator("figure p").last).to_have_text("The service cannot be reached.")
    page.unroute("**/v1/**")
    expect(page.locator("#about")).to_have_text("face_detector version 1 · on cpu")
    expect(page.locator("figure p")).to_have_text([re.compile("Nothing found")] * 2)

    page.route("**/detect?*", lambda route: route.abort())  # the service itself is there
    page.locator("#score").fill("0.5")
    expect(page.locator("figure p")).to_have_text(["The service cannot be reached."] * 2)
    expect(page.locator("#about")).to_have_text("face_detector version 1 · on cpu")


@pytest.mark.browser
def test_sends_no_file_above_the_limit_and_says_which_files_cannot_be_read(
    page: "Page", photo: Path, tmp_path: Path
) -> None:
    large, gone = tmp_path / "large.jpg", tmp_path / "gone.jpg"
    large.write_bytes(photo.read_bytes() + bytes(17_000_000))
    gone.write_bytes(photo.read_bytes())
    page.locator("#files").set_input_files([large, gone])
    texts = page.locator("figure p")
    expect(texts).to_have_text([re.compile("1 found"), "The file must have at most 2.1 MB, got 17.1 MB."])
    gone.unlink()
    page.locator("#score").fill("0.5")
    expect(texts.first).to_have_text("The file cannot be read.")


@pytest.mark.browser
def test_removes_pictures_by_keyboard(page: "Page", photo: Path) -> None:
    page.locator("#files").set_input_files([photo, photo])
    page.get_by_role("button", name="Remove grace_hopper.jpg").first.focus()
    for left in (1, 0):
        page.keyboard.press("Enter")
        expect(page.locator("figure")).to_have_count(left)
    expect(page.locator("#files")).to_be_focused()


@pytest.mark.browser
def test_documentation_lists_every_endpoint_of_the_document(page: "Page", service: httpx.Client) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/docs")
    operations = sum(len(path) for path in service.get("/openapi.json").json()["paths"].values())
    expect(page.locator(".opblock")).to_have_count(operations)
    assert all(url.startswith((str(service.base_url), "data:")) for url in asked)  # nothing of other hosts


@pytest.mark.browser
def test_chooses_one_of_several_models(
    browser: "Browser", shipped_path: Path, photo: Path, tmp_path: Path
) -> None:
    for name in ("faces", "more_faces"):
        (tmp_path / name).mkdir()
        shutil.copy(shipped_path, tmp_path / name / "1.pt")
    with (
        ServeProcess(None, "--models", str(tmp_path)) as process,
        browser.new_context(base_url=process.ready()) as context,
    ):
        page = context.new_page()
        page.goto("/")
        expect(page.locator("#about")).to_have_text("faces version 1 · on cpu")
        page.locator("#files").set_input_files(photo)
        expect(page.locator("figure p")).to_contain_text("1 found")
        page.locator("#score").fill("0.99")
        expect(page.locator("figure p")).to_contain_text("Nothing found")
        with page.expect_response(lambda answer: "/v1/models/more_faces/detect" in answer.url):
            page.get_by_label("Model").select_option("more_faces")
        expect(page.locator("#about")).to_have_text("more_faces version 1 · on cpu")
        expect(page.locator("figure p")).to_contain_text("1 found")  # with the model's own threshold


@pytest.mark.browser
def test_detects_in_the_camera_until_it_is_stopped(page: "Page") -> None:
    page.get_by_role("button", name="Start the camera").click()
    status = page.locator("figure p")
    expect(status).to_contain_text("found")
    expect(status).not_to_have_text(status.inner_text())
    page.get_by_role("button", name="Stop the camera").click()
    # Not `wait_for_function`, whose eval the page's policy forbids.
    wait_until(lambda: page.evaluate("document.querySelector('video').srcObject.active") is False)


@pytest.mark.browser
def test_asks_for_an_api_key(
    browser: "Browser", start_service: Start, artifact: Artifact, photo: Path, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text(f"{KEY}\n")
    guarded = start_service(lambda: artifact, api_keys_file=tmp_path / "keys").client
    with browser.new_context(base_url=str(guarded.base_url)) as context:
        page = context.new_page()
        page.goto("/")
        page.locator("#files").set_input_files(photo)
        field = page.get_by_label("This service requires an API key.")
        expect(page.locator("#about")).to_have_text("An API key is needed.")  # a page has no headers to name
        for key, message in (
            ("the-wrong-key", "The service does not know this API key."),
            (KEY, "face_detector"),
        ):
            field.fill(key)
            page.keyboard.press("Enter")
            expect(page.locator("#about")).to_contain_text(message)
        expect(page.locator("figure p")).to_contain_text("found")
        expect(field).to_be_hidden()
