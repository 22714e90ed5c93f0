// Requests to the service that serves this page.

let key = "";

/** Send an API key with all further requests. */
export function useKey(given) {
  key = given;
}

/** Return the names of the models, the default model first. */
export async function models() {
  return (await ask("v1/models")).models.map(({ name }) => name);
}

/** Return what the service says of a model. */
export function model(name) {
  return ask(`v1/models/${encodeURIComponent(name)}`);
}

/** Return a model's detections in an image file. thresholds: query parameters. */
export function detect(name, file, thresholds) {
  const parameters = new URLSearchParams({ ...thresholds, orientation: "exif" }); // as browsers show the picture
  return ask(`v1/models/${encodeURIComponent(name)}/detect?${parameters}`, { method: "POST", body: file });
}

/** Return the JSON of an answer. Throw an Error for people, with the HTTP status, or 0 without an answer. */
async function ask(path, options = {}) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const response = await fetch(path, { ...options, headers, cache: "no-store" }).catch(() => null);
  if (response === null) throw problem("The service cannot be reached, or the file cannot be read.", 0);
  const answer = await response.json().catch(() => ({})); // the answer of a proxy is not JSON
  if (response.ok) return answer;
  // The answer to a missing key is about headers, for programs.
  if (response.status === 401) throw problem(key ? "The service does not know this API key." : "An API key is needed.", 401);
  throw problem(answer.detail ?? `The service answered ${response.status} ${response.statusText}.`, response.status);
}

function problem(message, status) {
  return Object.assign(new Error(message), { status });
}
