// Boxes over a picture, in the colors of the C++ runner.

// Of the classes in turn: light ones, so that dark letters can be read on them.
const COLORS = [
  "#39ff78", "#ffb03b", "#60cdff", "#ff8ade", "#f5ff4d", "#bea0ff",
  "#ff806e", "#40f0e1", "#ffd6be", "#aae16e", "#c8d7ff", "#e1be5a",
];
const OUTLINE = "#0a2814"; // beside lines, and of letters: seen on light and dark pictures
const LONGEST = 2048; // pixels of a longer side; with more, a few photographs fill a phone's memory

/** The picture in an image file, upright, no larger than it is shown. Throws for what the browser cannot read. */
export async function pictureOf(file) {
  const whole = await createImageBitmap(file, { imageOrientation: "from-image" });
  const scale = LONGEST / Math.max(whole.width, whole.height);
  if (scale >= 1) return whole;
  const smaller = await createImageBitmap(whole, {
    resizeWidth: Math.max(1, Math.round(whole.width * scale)),
    resizeHeight: Math.max(1, Math.round(whole.height * scale)),
    resizeQuality: "medium",
  });
  whole.close();
  return smaller;
}

/**
 * Draws a picture and what was found in it, lines and letters of the same size on every screen.
 * model: whose classes have colors, and whose extras may be points.
 */
export function draw(canvas, picture, answer, model) {
  const context = canvas.getContext("2d");
  if (canvas.width !== picture.width || canvas.height !== picture.height) {
    canvas.width = picture.width;
    canvas.height = picture.height;
  }
  context.drawImage(picture, 0, 0);
  if (!answer) return;
  const unit = canvas.width / (canvas.clientWidth || canvas.width); // of the canvas, for a pixel of the page
  const x = canvas.width / answer.width;
  const y = canvas.height / answer.height;
  const points = Object.keys(model.extras ?? {}).filter((name) => model.extras[name].kind === "points");
  for (const detection of [...answer.detections].reverse()) { // the best on top
    const index = Math.max(0, (model.classes ?? []).indexOf(detection.label));
    const color = COLORS[index % COLORS.length];
    if (detection.box.includes(null)) continue; // what is no number comes as null
    const [x1, y1, x2, y2] = detection.box;
    const box = [x1 * x, y1 * y, (x2 - x1) * x, (y2 - y1) * y];
    for (const [style, width] of [[OUTLINE, 4], [color, 2]]) {
      context.strokeStyle = style;
      context.lineWidth = width * unit;
      context.strokeRect(...box);
    }
    for (const name of points) {
      for (const [px, py] of pairs(detection.extras?.[name])) disc(context, px * x, py * y, unit, color);
    }
    tag(context, box, words(detection), unit, color);
  }
}

/** A label and a score in percent. */
export function words(detection) {
  const percent = detection.score === null ? "–" : `${Math.round(100 * detection.score)}%`;
  return detection.label ? `${detection.label} ${percent}` : percent;
}

/** It stands on the upper edge of the box, or hangs inside it at the top of the picture. */
function tag(context, [left, top], text, unit, color) {
  context.font = `600 ${13 * unit}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  const width = context.measureText(text).width + 8 * unit;
  const height = 19 * unit;
  const x = Math.min(Math.max(left - 2 * unit, 0), Math.max(context.canvas.width - width, 0));
  const y = top >= height ? top - height : Math.max(top, 0);
  context.fillStyle = color;
  context.fillRect(x, y, width, height);
  context.fillStyle = OUTLINE;
  context.fillText(text, x + 4 * unit, y + height / 2 + unit / 2);
}

function disc(context, x, y, unit, color) {
  for (const [style, radius] of [[OUTLINE, 4], [color, 3]]) {
    context.fillStyle = style;
    context.beginPath();
    context.arc(x, y, radius * unit, 0, 2 * Math.PI);
    context.fill();
  }
}

/** The points in nested arrays; none for those that are not finite. */
function pairs(value) {
  if (!Array.isArray(value)) return [];
  if (value.length === 2 && value.every((item) => typeof item === "number")) return [value];
  return value.flatMap(pairs);
}
