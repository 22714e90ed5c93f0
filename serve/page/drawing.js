// Draw boxes on a picture, in the colors of the C++ runner.

// Colors of the classes, in turn: light colors, so that dark letters on them are readable.
const COLORS = [
  "#39ff78", "#ffb03b", "#60cdff", "#ff8ade", "#f5ff4d", "#bea0ff",
  "#ff806e", "#40f0e1", "#ffd6be", "#aae16e", "#c8d7ff", "#e1be5a",
];
const OUTLINE = "#0a2814"; // color of letters and of the outlines beside lines, visible on light and dark pictures
const LONGEST = 2048; // maximum pixels of the longer side: a few larger photographs fill a phone's memory

/** Decode an image file, upright, reduced to at most LONGEST. Throw if the browser cannot decode the file. */
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
 * Draw a picture and its detections, with lines and letters of the same size on every screen.
 * model: answer of /v1/model, for the colors of classes and for extras that are points.
 */
export function draw(canvas, picture, answer, model) {
  const context = canvas.getContext("2d");
  if (canvas.width !== picture.width || canvas.height !== picture.height) {
    canvas.width = picture.width;
    canvas.height = picture.height;
  }
  context.drawImage(picture, 0, 0);
  if (!answer) return;
  const unit = canvas.width / (canvas.clientWidth || canvas.width); // canvas pixels per page pixel
  const x = canvas.width / answer.width;
  const y = canvas.height / answer.height;
  const points = Object.keys(model.extras ?? {}).filter((name) => model.extras[name].kind === "points");
  for (const detection of [...answer.detections].reverse()) { // draw the best detection last, on top
    const index = Math.max(0, (model.classes ?? []).indexOf(detection.label));
    const color = COLORS[index % COLORS.length];
    if (detection.box.includes(null)) continue; // null stands for NaN and infinity
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

/** Return label and score in percent. */
export function words(detection) {
  const percent = detection.score === null ? "–" : `${Math.round(100 * detection.score)}%`;
  return detection.label ? `${detection.label} ${percent}` : percent;
}

/** Draw a label on the upper edge of a box, or inside the box at the top of the picture. */
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

/** Return the points in nested arrays, without points that are not finite. */
function pairs(value) {
  if (!Array.isArray(value)) return [];
  if (value.length === 2 && value.every((item) => typeof item === "number")) return [value];
  return value.flatMap(pairs);
}
