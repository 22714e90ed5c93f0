// Requests to the service that serves this page.

let key = "";

/** Send an API key with all further requests. */
export function useKey(given) {
  key = given;
}

/** Return the answer of /v1/model. */
export function model() {
  return ask("v1/model");
}

/** Return the answer of /v1/detect for an image file. thresholds: query parameters. */
export function detect(file, thresholds) {
  const parameters = new URLSearchParams({ ...thresholds, orientation: "exif" }); // as browsers show the picture
  return ask(`v1/detect?${parameters}`, { method: "POST", body: file });
}

/** Return the JSON of an answer. Throw an Error for people, with the HTTP status, or 0 without an answer. */
async function ask(path, options = {}) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const response = await fetch(path, { ...options, headers, cache: "no-store" }).catch(() => null);
  if (response === null) throw problem("The service cannot be reached, or the file cannot be read.", 0);
  const answer = await response.json().catch(() => ({})); // the answer of a proxy is not JSON
  if (response.ok) return answer;
  throw problem(answer.detail ?? `The service answered ${response.status} ${response.statusText}.`, response.status);
}

function problem(message, status) {
  return Object.assign(new Error(message), { status });
}
