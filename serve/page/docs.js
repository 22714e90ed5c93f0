// Show openapi.json: each operation with parameters, bodies and answers.

function element(name, text, ...children) {
  const made = document.createElement(name);
  made.textContent = text;
  made.append(...children);
  return made;
}

function list(title, items) {
  if (!items.length) return [];
  return [element("h3", title), element("ul", "", ...items.map((item) => element("li", item)))];
}

function operation(path, method, described) {
  const parameters = (described.parameters ?? []).map(
    ({ name, in: where, required, description }) =>
      `${name} (${where}${required ? ", required" : ""})${description ? `: ${description}` : ""}`,
  );
  const bodies = Object.keys(described.requestBody?.content ?? {});
  const answers = Object.entries(described.responses ?? {}).map(
    ([status, { description, content }]) => `${status} ${description}: ${Object.keys(content ?? {}).join(", ")}`,
  );
  return element(
    "details",
    "",
    element("summary", `${method.toUpperCase()} ${path}`),
    element("p", described.description ?? ""),
    ...list("Parameters", parameters),
    ...list("Body", bodies),
    ...list("Answers", answers),
    ...list("Key", described.security ? ["Authorization: Bearer KEY"] : []),
  );
}

const about = document.getElementById("about");
try {
  const answer = await fetch("openapi.json");
  if (!answer.ok) throw new Error(`openapi.json: HTTP ${answer.status}`);
  const { info, paths } = await answer.json();
  about.textContent = `${info.title} ${info.version}: ${info.summary}`;
  for (const [path, methods] of Object.entries(paths)) {
    for (const [method, described] of Object.entries(methods)) {
      document.getElementById("operations").append(operation(path, method, described));
    }
  }
} catch (error) {
  about.textContent = `The interface cannot be shown. ${error.message}`;
}
