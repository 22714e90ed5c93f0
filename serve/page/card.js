// The card of one picture, or of the camera: the picture with boxes over it, and a line of text.

export class Card {
  /** name: the picture's name. picture: an img or video element. onRemove: called on removal. */
  constructor(name, picture, onRemove) {
    this.element = document.getElementById("card").content.firstElementChild.cloneNode(true);
    this.element.querySelector("h2").textContent = name;
    this.frame = this.element.querySelector(".picture");
    this.frame.append(picture);
    this.status = this.element.querySelector("[role=status]");
    const remove = this.element.querySelector("button");
    remove.setAttribute("aria-label", `Remove ${name}`);
    remove.addEventListener("click", () => {
      this.element.remove();
      onRemove();
    });
  }

  /** Show the detections of an answer. classes: names of the classes, in the order of their colors. */
  show(answer, classes, milliseconds) {
    const count = answer.detections.length || "Nothing";
    this.say(`${count} found · ${answer.width} × ${answer.height} · ${Math.round(milliseconds)} ms`);
    const finite = answer.detections.filter((detection) => !detection.box.includes(null)); // null: not finite
    this.frame.append(...finite.reverse().map((detection) => box(detection, answer, classes))); // the best on top
  }

  /** Show an error in place of detections. */
  fail(error) {
    this.say(error.message);
    this.element.classList.add("failed");
  }

  say(text) {
    for (const old of this.frame.querySelectorAll(".box")) old.remove();
    this.element.classList.remove("failed");
    this.status.textContent = text;
  }
}

/** Return an element over the picture, in percent of its size, so that the browser scales both. */
function box({ box: [x1, y1, x2, y2], label, score }, { width, height }, classes) {
  const made = document.createElement("div");
  made.className = y1 < 0.06 * height ? "box inside" : "box"; // no room for the words above the box
  const percent = score === null ? "–" : `${Math.round(100 * score)}%`;
  made.append(Object.assign(document.createElement("span"), { textContent: `${label ?? ""} ${percent}`.trim() }));
  const share = (part, whole) => `${(100 * part) / whole}%`;
  made.style.left = share(x1, width);
  made.style.top = share(y1, height);
  made.style.width = share(x2 - x1, width);
  made.style.height = share(y2 - y1, height);
  made.style.setProperty("--hue", 140 + 137 * Math.max(0, classes.indexOf(label))); // far from the hues before
  return made;
}
