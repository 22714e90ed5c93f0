"""Read photographs labelled in YOLO's layout: `data.yaml`, and a text file of normalised boxes per image.

`data.yaml` names the classes (`names`, a list or a mapping). For each split it names folders of images, or
text files that list images. The labels of `…/images/a.jpg` are `…/labels/a.txt`. A row is `class x y width
height` (the centre, as shares of the image), or a class and the corners of a polygon. With `kpt_shape: [K,
D]` a box may be followed by K landmarks of D numbers, which are skipped. Longer rows need `kpt_shape`, [0, 0]
for polygons: a box with landmarks could be taken for a polygon. An image without a label file has no boxes.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lensbox.common.pictures import IMAGE_SUFFIXES
from lensbox.evaluation.data.account import MISSING, TWICE, Account
from lensbox.evaluation.data.files import files_below, find_file, is_file
from lensbox.evaluation.data.labels import SHARES, DataError, LabelledImage, Row, read_rows, read_text

# Files beside photographs that nobody takes for one.
_BESIDE = (".txt", ".json", ".xml", ".yaml", ".yml", ".csv", ".md", ".cache", ".npy", ".db", ".ini")


def read_yolo(file: Path, account: Account, split: str) -> Iterator[LabelledImage]:
    """Yield the labelled images of one split of a `data.yaml`. Add to the account.

    Raise DataError if the file is wrong, a folder is missing, or no image has a label file.
    """
    content, names, landmarks = _load_yaml(file)
    by_labels: dict[Path, Path] = {}
    images = []
    for image in _images(file, content, split, account):
        if not is_file(image):
            account.skip(MISSING, f"{file}: {split}: {str(image)[:300]} is no file", photographs=1)
            continue
        images.append(image)
        labels = _labels_of(image)
        if (other := by_labels.setdefault(labels, image)) != image:
            account.skip(TWICE, f"{image} and {other.name} have the same label file, {labels}")
        rows = list(_lines(labels)) if labels.is_file() else []
        if landmarks is None and (long := next((row for row in rows if len(row[1].split()) > 6), None)):
            rule = f"{file} must say what follows the class in rows of more than four numbers"
            raise DataError(f"{long[0]}: {rule}: kpt_shape: [landmarks, numbers], or [0, 0] for polygons")
        boxes = read_rows(rows, partial(_parse_row, names=names, landmarks=landmarks or 0), account)
        yield LabelledImage(image.name, image, *boxes, str(labels), labelled_size=SHARES)
    bare, where = [image for image in images if not _labels_of(image).is_file()], ""
    if bare:
        labels = _labels_of(bare[0])
        if len(bare) == len(images):
            message = f"{len(bare)} of {len(images)} photographs have no label file, such as {labels}"
            raise DataError(f"{file}: {split}: {message}; a photograph without objects needs an empty file")
        line = f"{bare[0]}: there is no {labels}; it is background"
        account.add("photographs without a label file", len(bare), line)
        where = f"; {bare[0].name} is looked for in {labels.parent}"
    for labels in _lost_labels(images):
        account.skip("label files without a photograph", f"{labels}: label file without a photograph{where}")


def _lost_labels(images: Sequence[Path]) -> list[Path]:
    """Return the label files in the folders of the images and of their labels that belong to no image."""
    roots = set(map(_root, images))
    roots = {root for root in roots if not any(other in root.parents for other in roots)}
    known = {_labels_of(image) for root in roots for image in files_below(root) if _is_image(image)}
    places = {place for root in roots for place in (root, _labels_of(root / "x").parent) if place.is_dir()}
    files = {file for place in places for file in files_below(place)}
    texts = {file for file in files if file.suffix == ".txt" and not file.name.startswith(".")}
    return sorted(filter(_holds_rows, texts - known - set(map(_labels_of, images))))


def _root(image: Path) -> Path:
    """Return the last folder `images` above an image, or the folder of the image."""
    return next((folder for folder in image.parents if folder.name == "images"), image.parent)


def _labels_of(image: Path) -> Path:
    """Return the label file of an image: `labels` in the place of the last folder `images`."""
    root = _root(image)
    labels = root.with_name("labels") if root.name == "images" else root
    return labels / image.parent.relative_to(root) / f"{image.stem}.txt"


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    """Yield place and text of each line that is not empty."""
    for number, line in enumerate(read_text(file).splitlines(), 1):
        if line.strip():
            yield f"{file}:{number}", line.strip()


def _holds_rows(file: Path) -> bool:
    """Return whether a text file is a label file: lists of images or of classes are not."""
    words = next((line.split() for _, line in _lines(file)), ["0"] * 5)
    return len(words) >= 5 and all(word.lstrip("-").replace(".", "", 1)[:1].isdecimal() for word in words)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")


def _load_yaml(file: Path) -> tuple[dict[str, Any], dict[float, str], int | None]:
    """Return the content, the names of the classes by number, and how many numbers may follow a box.

    These are 0 if longer rows are polygons, None if the file is silent.
    """
    import yaml

    try:
        # Every scalar stays text: the class `no` must not become False, nor `1` a number.
        content = yaml.load(read_text(file), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise DataError(f"{file} must be YAML: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{file} must be a mapping with names, train and val, got {type(content).__name__}")
    given, shape = content.get("names"), content.get("kpt_shape")
    pairs = dict(enumerate(given)) if isinstance(given, list) else given if isinstance(given, dict) else {}
    try:
        names = {float(label): str(name) for label, name in pairs.items()}
    except ValueError:
        names = {}
    if not names:
        raise DataError(f"{file}: names must list the classes, got {given!r}")
    if shape is None:
        return content, names, None
    if isinstance(shape, list) and len(shape) == 2 and all(map(str.isdecimal, map(str, shape))):
        return content, names, int(shape[0]) * int(shape[1])
    raise DataError(f"{file}: kpt_shape must be [landmarks, numbers of each], got {shape!r}")


def _images(file: Path, content: Mapping[str, Any], split: str, account: Account) -> list[Path]:
    """Return the images of a split in folders, at any depth, or in text files."""
    places = content.get(split)
    places = places if isinstance(places, list) else [places]
    if not all(isinstance(place, str) and place for place in places):
        raise DataError(f"{file}: {split} must name a folder of images, got {content.get(split)!r}")
    folders = [file.parent / _local(str(content.get("path") or "")), file.parent]
    images: list[Path] = []
    for name in map(_local, places):
        # Some tools write `../train/images` for a folder beside data.yaml.
        place = _first(folders, name) or _first(folders, name.removeprefix("../"))
        if place is None:
            raise DataError(f"{file}: {split} must name a folder that exists, got {name!r}")
        if place.is_file():
            for _, line in _lines(place):
                found = find_file([place.parent, *folders], line)
                images.append(found[1] if found else place.parent / line)
            continue
        for path in files_below(place):
            if _is_image(path):
                images.append(path)
            elif path.name[0] != "." and path.suffix.lower() not in _BESIDE:
                account.skip("files left out: not a photograph by name", f"{path}: left out")
    return images


def _local(name: str) -> str:
    return name.replace("\\", "/")  # Windows


def _first(folders: Sequence[Path], name: str) -> Path | None:
    """Return the first path of this name that exists."""
    return next((folder / name for folder in folders if (folder / name).exists()), None)


def _parse_row(text: str, names: Mapping[float, str], landmarks: int) -> Row:
    """Return a box in shares. landmarks: numbers that may follow a box; 0 if longer rows are polygons."""
    try:
        label, *values = map(float, text.split())
    except ValueError:
        raise ValueError("a row must be numbers: class x y width height") from None
    if label not in names:
        raise ValueError(f"the class must be one of the {len(names)} names of data.yaml")
    if landmarks and len(values) == 4 + landmarks:
        values = values[:4]
    if not all(-0.01 <= value <= 1.01 for value in values):  # false for NaN; tools round
        raise ValueError("coordinates must be shares of the image, from 0 to 1")
    if len(values) == 4:
        x, y, width, height = values
        return Row(x - width / 2, y - height / 2, width, height, name=names[label])
    if not landmarks and len(values) >= 6 and len(values) % 2 == 0:
        x, y = min(values[::2]), min(values[1::2])
        return Row(x, y, max(values[::2]) - x, max(values[1::2]) - y, name=names[label])
    longer = f"{landmarks} numbers of landmarks" if landmarks else "a class and the corners of a polygon"
    raise ValueError(f"a row must be class x y width height, or {longer}")
