// The card of one picture, or of the camera.

import { draw, words } from "./drawing.js";

/** A card of the list. name: the picture's name. model: answer of /v1/model. onRemove: called on removal. */
export class Card {
  constructor(name, model, onRemove) {
    this.name = name;
    this.model = model;
    this.picture = null;
    this.answer = null;
    this.element = document.getElementById("card").content.firstElementChild.cloneNode(true);
    this.canvas = this.find("canvas");
    this.find("h2").textContent = name;
    this.canvas.setAttribute("aria-label", name);
    const remove = this.find(".remove");
    remove.setAttribute("aria-label", `Remove ${name}`);
    remove.addEventListener("click", () => {
      this.resized.disconnect();
      this.element.remove();
      this.picture?.close();
      this.picture = null;
      onRemove(this);
    });
    // Draw again after a resize, so that lines and letters keep their size.
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.canvas);
  }

  find(selector) {
    return this.element.querySelector(selector);
  }

  /** Show a picture, an ImageBitmap. The card closes the ImageBitmap. */
  show(picture) {
    if (!this.element.isConnected) return picture.close(); // the card was removed while the file was read
    this.picture?.close();
    this.picture = picture;
    this.draw();
  }

  /** Show the detections of an answer. Return a summary in words. note: text after the size. */
  found(answer, note = `${Math.round(answer.milliseconds)} ms`) {
    this.answer = answer;
    this.waiting(false);
    this.find(".error").hidden = true;
    const count = answer.detections.length;
    const found = count === 0 ? "Nothing found" : `${count} found`;
    this.find(".summary").textContent = `${found} · ${answer.width} × ${answer.height} · ${note}`;
    const listed = answer.detections.map(words).join(", ");
    this.canvas.setAttribute("aria-label", `${this.name}: ${found.toLowerCase()}${listed && `, ${listed}`}`);
    this.list(answer.detections);
    this.draw();
    return `${this.name}: ${found.toLowerCase()}`;
  }

  /** Show an error in place of detections. */
  failed(problem) {
    this.answer = null;
    this.canvas.setAttribute("aria-label", this.name);
    this.waiting(false);
    this.find(".summary").textContent = "";
    this.find("details").hidden = true;
    const error = this.find(".error");
    error.textContent = problem.message;
    if (problem.requestId) {
      error.append(Object.assign(document.createElement("small"), { textContent: `Request ${problem.requestId}` }));
    }
    error.hidden = false;
    this.canvas.hidden = this.picture === null;
    this.draw();
  }

  waiting(isWaiting) {
    this.element.classList.toggle("waiting", isWaiting);
  }

  list(detections) {
    this.find("details").hidden = detections.length === 0;
    const rows = detections.map((detection) => {
      const row = document.createElement("tr");
      const numbers = detection.box.map((value) => value?.toFixed(1) ?? "–");
      for (const text of [detection.label ?? "–", detection.score?.toFixed(3) ?? "–", ...numbers]) {
        row.insertCell().textContent = text;
      }
      return row;
    });
    this.find("tbody").replaceChildren(...rows);
  }

  draw() {
    if (this.picture) draw(this.canvas, this.picture, this.answer, this.model);
  }
}
