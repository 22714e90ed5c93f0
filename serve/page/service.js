// Requests to the service that this page came from.

const KEY = "lensbox-api-key";
const TRIES = 5;
const LONGEST_WAIT = 30; // seconds

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

/** Keeps an API key until the tab is closed. */
export function useKey(key) {
  sessionStorage.setItem(KEY, key);
}

/** What the service serves. Throws Problem. */
export async function model() {
  return (await ask("v1/model", {})).json();
}

/**
 * What the detector finds in an image file, and the milliseconds that it took. thresholds: query parameters.
 * Throws Problem, and AbortError once `signal` is aborted.
 */
export async function detect(file, thresholds, signal) {
  const parameters = new URLSearchParams({ ...thresholds, orientation: "exif" }); // as the browser shows it
  const start = performance.now();
  const response = await ask(`v1/detect?${parameters}`, { method: "POST", body: file, signal });
  const answer = await response.json();
  return { ...answer, milliseconds: performance.now() - start };
}

/** A good answer, which is asked for again while the service says that it will have time later. */
async function ask(path, options) {
  const key = sessionStorage.getItem(KEY);
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  for (let attempt = 1; ; attempt += 1) {
    let response;
    try {
      response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "same-origin" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem("The service cannot be reached. Is it still running?");
    }
    if (response.ok) return response;
    const wait = Number(response.headers.get("Retry-After") ?? NaN);
    if (![429, 503].includes(response.status) || attempt === TRIES || !(wait <= LONGEST_WAIT)) {
      throw await problemOf(response);
    }
    await pause(1000 * wait * (1 + 0.25 * Math.random()), options.signal);
  }
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
