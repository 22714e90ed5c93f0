// Requests to the service that this page came from.

const KEY = "lensbox-api-key";
const TRIES = 5;
const LONGEST_WAIT = 30; // seconds

let key = storedKey();

/** Why a request was not answered, in words. status: 0 where no answer came. */
export class Problem extends Error {
  constructor(message, { status = 0, requestId = null } = {}) {
    super(message);
    this.status = status;
    this.requestId = requestId;
  }

  /** Whether it was for want of an API key. */
  get wantsKey() {
    return this.status === 401;
  }

  /** Whether the service may answer in a while. */
  get mayPass() {
    return [0, 429, 503].includes(this.status);
  }
}

/** Whether a key can be sent: fetch refuses other characters, and so does the service. */
export function isKey(text) {
  return /^[!-~]+$/.test(text);
}

/** Keeps an API key until the tab is closed. */
export function useKey(given) {
  key = given;
  try {
    sessionStorage.setItem(KEY, given);
  } catch {
    // A browser that lets pages store nothing: the key is asked for again when the page is loaded again.
  }
}

function storedKey() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** What the service serves. Throws Problem. */
export async function model() {
  return ask("v1/model", {});
}

/**
 * What the detector finds in an image file, and the milliseconds that it took. thresholds: query parameters.
 * Throws Problem, and AbortError once `signal` is aborted.
 */
export async function detect(file, thresholds, signal) {
  const parameters = new URLSearchParams({ ...thresholds, orientation: "exif" }); // as the browser shows it
  const start = performance.now();
  const answer = await ask(`v1/detect?${parameters}`, { method: "POST", body: file, signal });
  return { ...answer, milliseconds: performance.now() - start };
}

/** The JSON of a good answer, which is asked for again while the service says that it will have time later. */
async function ask(path, options) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  for (let attempt = 1; ; attempt += 1) {
    let response;
    try {
      response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "same-origin" });
      if (response.ok) return await response.json();
    } catch (error) {
      throw error.name === "AbortError" ? error : await withoutAnswer(error, options.body);
    }
    const wait = Number(response.headers.get("Retry-After") ?? NaN);
    if (![429, 503].includes(response.status) || attempt === TRIES || !(wait <= LONGEST_WAIT)) {
      throw await problemOf(response);
    }
    await pause(1000 * wait * (1 + 0.25 * Math.random()), options.signal);
  }
}

/** Why there was no answer, or none that can be read. file: what was sent, if anything. */
async function withoutAnswer(error, file) {
  if (error instanceof SyntaxError) return new Problem("What answers here is no service of Lensbox.");
  const isReadable = await file?.slice(0, 1).arrayBuffer().then(() => true, () => false);
  if (isReadable === false) return new Problem("The file cannot be read. Is it a folder, or has it changed since?");
  return new Problem("The service cannot be reached. Is it still running?");
}

async function problemOf(response) {
  const about = { status: response.status, requestId: response.headers.get("X-Request-ID") };
  try {
    const document = await response.json();
    if (document.detail) return new Problem(sentence(document.detail), about);
  } catch {
    // Of a proxy between us: no problem document.
  }
  return new Problem(`The service answered ${response.status} ${response.statusText}.`, about);
}

function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}
