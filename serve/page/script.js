// The page: take pictures, send requests, and repeat them when thresholds change.

import { openCamera } from "./camera.js";
import { Card } from "./card.js";
import { pictureOf } from "./drawing.js";
import { detect, isKey, model as askModel, useKey } from "./service.js";

const AT_A_TIME = 3; // requests in flight; the service has other clients
const RECONNECT = 2000; // milliseconds between retries while the service is loading or unreachable
const DEBOUNCE = 200; // milliseconds after the last move of a slider

const element = (id) => document.getElementById(id);
const sliders = { score: element("score"), iou: element("iou") };
const results = element("results");

let model = null;
let live = null; // the camera and its card
const pictures = new Map(); // by card: file, and AbortController of the request
const waiting = []; // cards whose request has not begun
let asking = 0;
let reading = Promise.resolve(); // reads files one after the other: many large files at once would fill the memory

// --- the service ---

async function connect() {
  try {
    model = await askModel();
  } catch (problem) {
    fail(problem);
    about(problem.message);
    if (problem.mayPass) setTimeout(connect, RECONNECT);
    return;
  }
  const count = model.classes?.length ?? 1;
  const kinds = count > 1 ? `${count} classes` : "one class";
  about(`${model.name} · ${kinds} · on ${model.service.device}`);
  document.title = `${model.name} · Lensbox`;
  element("thresholds").disabled = false;
  reset();
  for (const card of pictures.keys()) card.model = model;
  if (live) live.card.model = model;
  askAgain();
}

/** Show the state of the service. Screen readers announce a change. */
function about(text) {
  if (element("about").textContent !== text) element("about").textContent = text;
}

/** Show the field for an API key if the service answered 401. */
function fail(problem) {
  if (!problem.wantsKey || !element("key").hidden) return;
  element("key").hidden = false;
  element("key-value").focus();
}

element("key-value").addEventListener("input", (event) => {
  const text = event.target.value.trim();
  const isWrong = text !== "" && !isKey(text);
  event.target.setCustomValidity(isWrong ? "A key has only ASCII letters, digits and punctuation, and no spaces." : "");
});

element("key").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(element("key-value").value.trim());
  element("key").hidden = true;
  element("key-value").value = "";
  if (model) askAgain();
  else connect();
});

// --- pictures ---

function add(files) {
  for (const file of [...files].reverse()) { // newer cards go first
    const card = newCard(file.name || "Pasted picture", (gone) => {
      pictures.get(gone).controller?.abort();
      pictures.delete(gone);
    });
    pictures.set(card, { file, controller: null });
    card.waiting(true);
    reading = reading.then(() => show(card, file)).then(() => enqueue(card));
  }
}

function newCard(name, onRemove) {
  const card = new Card(name, model ?? {}, (gone) => {
    onRemove(gone);
    element("empty").hidden = results.querySelector(".card") !== null;
    element("files").focus();
  });
  element("empty").hidden = true;
  results.prepend(card.element);
  card.element.scrollIntoView({ block: "nearest" });
  return card;
}

async function show(card, file) {
  if (!pictures.has(card)) return; // removed while it waited
  try {
    card.show(await pictureOf(file));
  } catch {
    // The browser cannot decode the file. The service's answer says why, or has detections.
    card.canvas.hidden = true;
  }
}

function enqueue(card) {
  if (!model || !pictures.has(card)) return; // `connect` sends it once the model is known
  pictures.get(card).controller?.abort();
  card.waiting(true);
  if (!waiting.includes(card)) waiting.push(card);
  next();
}

async function next() {
  if (asking >= AT_A_TIME) return;
  const card = waiting.shift();
  if (!card) return;
  const entry = pictures.get(card);
  if (!entry) return next();
  asking += 1;
  const controller = new AbortController();
  entry.controller = controller;
  try {
    announce(card.found(await detect(entry.file, thresholds(), controller.signal)));
  } catch (problem) {
    if (!controller.signal.aborted) {
      card.failed(problem);
      fail(problem);
    }
  } finally {
    asking -= 1;
    next();
  }
}

function askAgain() {
  for (const card of pictures.keys()) enqueue(card);
}

function announce(text) {
  element("news").textContent = text;
}

element("files").addEventListener("change", (event) => {
  add(event.target.files);
  event.target.value = ""; // so that the same file can be chosen again
});

document.addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dropping");
});
document.addEventListener("dragleave", (event) => {
  if (event.relatedTarget === null) document.body.classList.remove("dropping");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  add(event.dataTransfer.files);
});
document.addEventListener("paste", (event) => add(event.clipboardData.files));

// --- thresholds ---

/** Return the moved thresholds. The detector's own thresholds may lie between two steps of a slider. */
function thresholds() {
  const moved = Object.entries(sliders).filter(([, slider]) => slider.dataset.moved);
  return Object.fromEntries(moved.map(([name, slider]) => [`${name}_threshold`, slider.value]));
}

function showThresholds() {
  for (const [name, slider] of Object.entries(sliders)) {
    element(`${name}-value`).textContent = Number(slider.value).toFixed(2);
  }
}

function reset() {
  sliders.score.value = model.defaults.score_threshold;
  sliders.iou.value = model.defaults.iou_threshold;
  for (const slider of Object.values(sliders)) delete slider.dataset.moved;
  showThresholds();
}

let timer = 0;
for (const slider of Object.values(sliders)) {
  slider.addEventListener("input", () => {
    slider.dataset.moved = "yes";
    showThresholds();
    clearTimeout(timer);
    timer = setTimeout(askAgain, DEBOUNCE);
  });
}
element("reset").addEventListener("click", () => {
  clearTimeout(timer);
  reset();
  askAgain();
});

// --- the camera ---

async function startCamera() {
  const card = newCard("Camera", (gone) => live?.card === gone && stopCamera());
  live = { card, camera: null, controller: new AbortController() };
  const mine = live;
  pressed(true);
  try {
    mine.camera = await openCamera();
    if (live !== mine) return mine.camera.close(); // stopped while the browser asked for permission
    let last = performance.now();
    while (live === mine) {
      const { picture, file } = await mine.camera.frame();
      const answer = await detect(file, thresholds(), mine.controller.signal);
      if (live !== mine) return;
      const now = performance.now();
      card.show(picture);
      card.found(answer, `${Math.round(answer.milliseconds)} ms · ${(1000 / (now - last)).toFixed(1)} a second`);
      last = now;
    }
  } catch (problem) {
    if (live !== mine) return;
    card.failed(problem);
    fail(problem);
    stopCamera();
  }
}

/** Stop the camera. Its last frame stays visible. */
function stopCamera() {
  if (!live) return;
  live.controller.abort();
  live.camera?.close();
  live = null;
  pressed(false);
}

function pressed(isOn) {
  element("camera").setAttribute("aria-pressed", isOn);
  element("camera").textContent = isOn ? "Stop the camera" : "Start the camera";
}

element("camera").addEventListener("click", () => (live ? stopCamera() : startCamera()));
document.addEventListener("visibilitychange", () => {
  if (document.hidden) stopCamera();
});

connect();
