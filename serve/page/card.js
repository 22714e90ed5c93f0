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
      const next = this.element.nextElementSibling ?? this.element.previousElementSibling;
      this.element.remove();
      (next?.querySelector("button") ?? document.getElementById("files")).focus(); // the keyboard stays here
      onRemove();
    });
  }

  /** Show the detections of an answer. classes: in the order of their colors. points: the extras that are points. */
  show(answer, classes, points, milliseconds) {
    const count = answer.detections.length || "Nothing";
    this.say(`${count} found · ${answer.width} × ${answer.height} · ${Math.round(milliseconds)} ms`);
    const finite = answer.detections.filter((detection) => !detection.box.includes(null)); // null: not finite
    this.frame.append(...finite.reverse().flatMap((detection) => marks(detection, answer, classes, points))); // the best on top
  }

  /** Show an error in place of detections. */
  fail(error) {
    this.say(error.message);
    this.element.classList.add("failed");
  }

  say(text) {
    for (const old of this.frame.querySelectorAll(".box, .dot")) old.remove();
    this.element.classList.remove("failed");
    this.status.textContent = text;
  }
}

/** Return elements over the picture, in percent of its size, so that the browser scales all: a box, and a dot a point. */
function marks({ box: [x1, y1, x2, y2], label, score, extras }, { width, height }, classes, points) {
  const hue = 140 + 137 * Math.max(0, classes.indexOf(label)); // far from the hues before
  const place = (name, x, y) => {
    const made = Object.assign(document.createElement("div"), { className: name });
    made.style.left = `${(100 * x) / width}%`;
    made.style.top = `${(100 * y) / height}%`;
    made.style.setProperty("--hue", hue);
    return made;
  };
  const box = place(y1 < 0.06 * height ? "box inside" : "box", x1, y1); // no room for the words above the box
  box.style.width = `${(100 * (x2 - x1)) / width}%`;
  box.style.height = `${(100 * (y2 - y1)) / height}%`;
  const percent = score === null ? "–" : `${Math.round(100 * score)}%`;
  box.append(Object.assign(document.createElement("span"), { textContent: `${label ?? ""} ${percent}`.trim() }));
  const made = [box];
  const numbers = points.flatMap((name) => extras[name]).flat(Infinity); // x, y, x, y, ...
  for (let i = 0; i < numbers.length; i += 2) {
    const [x, y] = numbers.slice(i, i + 2);
    if (x !== null && y !== null) made.push(place("dot", x, y));
  }
  return made;
}
