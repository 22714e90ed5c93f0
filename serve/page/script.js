// The page: take pictures and frames of the camera, ask for detections, ask again when a threshold changes.

import { Card } from "./card.js";
import { detect, model as askModel, models as askModels, useKey } from "./service.js";

const RECONNECT = 2000; // milliseconds
const DEBOUNCE = 200; // milliseconds after the last move of a slider
const QUALITY = 0.85; // of the JPEG files of the camera's frames

const element = (id) => document.getElementById(id);
let model = null;
let live = null; // the camera's card while the camera runs
const files = new Map(); // the file of each card
const waiting = new Set(); // cards whose file is to be sent
const thresholds = {}; // moved ones only: the detector's own may lie between two steps of a slider

// --- the service ---

async function connect() {
  try {
    const names = await askModels();
    const chosen = names.find((name) => name === element("model").value) ?? names[0];
    element("model").replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
    element("models").hidden = names.length < 2;
    const described = await askModel(chosen);
    if (element("model").value !== chosen) return; // another was chosen meanwhile
    model = described;
  } catch (problem) {
    model = null;
    fail(problem);
    element("about").textContent = problem.message;
    if ([0, 429, 503].includes(problem.status)) setTimeout(connect, RECONNECT);
    return;
  }
  const { service } = model;
  element("about").textContent = `${service.model} version ${service.model_version} · on ${service.device}`;
  for (const name of ["score", "iou"]) {
    element(name).disabled = false;
    element(name).value = thresholds[`${name}_threshold`] ?? model.defaults[`${name}_threshold`];
    element(`${name}-value`).textContent = Number(element(name).value).toFixed(2);
  }
  sendAll();
}

/** Show the field for an API key if the service wants one. Connect again if the service is gone. */
async function fail(problem) {
  if (problem.status === 401) {
    element("key").hidden = false;
    element("key-value").focus();
  }
  if (problem.status === 0 && model !== null) {
    await askModels().catch(() => { // else only this request failed, at a proxy perhaps
      if (model === null) return; // another request has seen the same
      model = null;
      connect();
    });
  }
}

/** Show the detections of a file in a card. */
async function find(card, file) {
  if (model === null) throw new Error("The service is not connected yet.");
  const start = performance.now();
  const answer = await detect(model.service.model, file, thresholds, model.service.limits.max_body_bytes);
  const extras = model?.extras ?? {};
  const points = Object.keys(extras).filter((name) => extras[name].kind === "points");
  card.show(answer, model?.classes ?? [], points, performance.now() - start);
}

element("key").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(element("key-value").value);
  element("key").reset();
  element("key").hidden = true;
  connect();
});

element("model").addEventListener("change", () => {
  for (const name of Object.keys(thresholds)) delete thresholds[name]; // each model has its own
  connect();
});

// --- pictures ---

function add(name, picture, onRemove) {
  const card = new Card(name, picture, onRemove);
  element("results").prepend(card.element);
  return card;
}

function addFiles(given) {
  const added = [...given].map((file) => {
    const picture = new Image();
    picture.alt = "";
    picture.src = URL.createObjectURL(file);
    picture.addEventListener("error", () => picture.remove()); // the service's answer says why, or has detections
    const card = add(file.name, picture, () => {
      files.delete(card);
      waiting.delete(card);
      URL.revokeObjectURL(picture.src);
    });
    files.set(card, file);
    return card;
  });
  sendAll(added);
}

let isSending = false;

/** Send the files of cards, one after the other: the service has other clients. */
async function sendAll(cards = files.keys()) {
  for (const card of cards) waiting.add(card);
  if (isSending || model === null) return;
  isSending = true;
  for (const card of waiting) { // also reaches cards that are added meanwhile
    if (model === null) break; // the service is gone: `connect` sends all files again
    waiting.delete(card);
    try {
      await find(card, files.get(card));
    } catch (problem) {
      card.fail(problem);
      await fail(problem);
    }
  }
  isSending = false;
}

element("files").addEventListener("change", (event) => {
  addFiles(event.target.files);
  event.target.value = ""; // so that the same file can be chosen again
});
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  addFiles(event.dataTransfer.files);
});
document.addEventListener("paste", (event) => addFiles(event.clipboardData.files));

// --- thresholds ---

let timer = 0;
for (const name of ["score", "iou"]) {
  element(name).addEventListener("input", () => {
    thresholds[`${name}_threshold`] = element(name).value;
    element(`${name}-value`).textContent = Number(element(name).value).toFixed(2);
    clearTimeout(timer);
    timer = setTimeout(sendAll, DEBOUNCE);
  });
}

// --- the camera ---

/** Send one frame after the other until the camera is stopped or gone. The last frame stays visible. */
async function runCamera() {
  const video = Object.assign(document.createElement("video"), { muted: true, playsInline: true });
  const card = add("Camera", video, () => live === card && setLive(null));
  setLive(card);
  try {
    if (!navigator.mediaDevices) throw new Error("Browsers allow the camera only on https:// or localhost.");
    const stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    video.srcObject = stream;
    await video.play();
    while (live === card && stream.active) {
      const frame = new OffscreenCanvas(video.videoWidth, video.videoHeight);
      frame.getContext("2d").drawImage(video, 0, 0);
      await find(card, await frame.convertToBlob({ type: "image/jpeg", quality: QUALITY }));
    }
  } catch (problem) {
    card.fail(problem);
    fail(problem);
  }
  video.srcObject?.getTracks().forEach((track) => track.stop());
  if (live === card) setLive(null);
}

function setLive(card) {
  live = card;
  element("camera").setAttribute("aria-pressed", card !== null);
  element("camera").textContent = card ? "Stop the camera" : "Start the camera";
}

element("camera").addEventListener("click", () => (live ? setLive(null) : runCamera()));
document.addEventListener("visibilitychange", () => document.hidden && setLive(null));

connect();
