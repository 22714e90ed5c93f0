// Requests to the service that serves this page.

const KEY = "lensbox-api-key";
const TRIES = 5;
const LONGEST_WAIT = 30; // seconds

let key = storedKey();

/** An error for people. status: HTTP status; 0 without an answer. requestId: X-Request-ID of the answer. */
export class Problem extends Error {
  constructor(message, { status = 0, requestId = null } = {}) {
    super(message);
    this.status = status;
    this.requestId = requestId;
  }

  /** True if the service requires an API key. */
  get wantsKey() {
    return this.status === 401;
  }

  /** True if a retry may succeed. */
  get mayPass() {
    return [0, 429, 503].includes(this.status);
  }
}

/** Return true if fetch and the service accept the characters of a key. */
export function isKey(text) {
  return /^[!-~]+$/.test(text);
}

/** Store an API key until the tab is closed. */
export function useKey(given) {
  key = given;
  try {
    sessionStorage.setItem(KEY, given);
  } catch {
    // The browser blocks storage: the page asks for the key again after a reload.
  }
}

function storedKey() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** Return the answer of /v1/model. Throw Problem. */
export async function model() {
  return ask("v1/model", {});
}

/**
 * Return the answer of /v1/detect for an image file, and its latency in milliseconds. thresholds: query
 * parameters. Throw Problem, or AbortError once `signal` is aborted.
 */
export async function detect(file, thresholds, signal) {
  const parameters = new URLSearchParams({ ...thresholds, orientation: "exif" }); // as on the page
  const start = performance.now();
  const answer = await ask(`v1/detect?${parameters}`, { method: "POST", body: file, signal });
  return { ...answer, milliseconds: performance.now() - start };
}

/** Return the JSON of a successful answer. Retry after 429 and 503 with Retry-After. */
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

/** Return the Problem of a request without a readable answer. file: body of the request, if any. */
async function withoutAnswer(error, file) {
  if (error instanceof SyntaxError) return new Problem("The server at this address is not a Lensbox service.");
  const isReadable = await file?.slice(0, 1).arrayBuffer().then(() => true, () => false);
  if (isReadable === false) return new Problem("The file cannot be read. Is it a folder, or has the file changed?");
  return new Problem("The service cannot be reached. Is it still running?");
}

async function problemOf(response) {
  const about = { status: response.status, requestId: response.headers.get("X-Request-ID") };
  try {
    const document = await response.json();
    if (document.detail) return new Problem(sentence(document.detail), about);
  } catch {
    // The answer of a proxy is not a problem document.
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
