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

/** Return a model's detections in an image file. thresholds: query parameters. mostBytes: the service's limit. */
export async function detect(name, file, thresholds, mostBytes) {
  if (file.size > mostBytes) throw problem(`The file must have at most ${megabytes(mostBytes)}, got ${megabytes(file.size)}.`);
  // Read here, so that a failed request is the service's fault: the file may be a folder, or moved since.
  const body = await file.arrayBuffer().catch(() => { throw problem("The file cannot be read."); });
  const parameters = new URLSearchParams({ ...thresholds, orientation: "exif" }); // as browsers show the picture
  return ask(`v1/models/${encodeURIComponent(name)}/detect?${parameters}`, { method: "POST", body });
}

/** Return the JSON of an answer. Throw an Error for people, with the HTTP status; 0: the service did not answer. */
async function ask(path, options = {}) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const response = await fetch(path, { ...options, headers, cache: "no-store" }).catch(() => null);
  if (response === null) throw problem("The service cannot be reached.", 0);
  const answer = await response.json().catch(() => ({})); // the answer of a proxy is not JSON
  if (response.ok) return answer;
  // The answer to a missing key is about headers, for programs.
  if (response.status === 401) throw problem(key ? "The service does not know this API key." : "An API key is needed.", 401);
  throw problem(answer.detail ?? `The service answered ${response.status} ${response.statusText}.`, response.status);
}

function problem(message, status) {
  return Object.assign(new Error(message), { status });
}

function megabytes(bytes) {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}
