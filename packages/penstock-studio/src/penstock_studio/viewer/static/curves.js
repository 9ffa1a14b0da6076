// Histograms, spans and the line of all steps on a canvas, sharp on any screen, in the colours of the page.

export const COLORS = ["#1c7ed6", "#f76707", "#2f9e44", "#ae3ec9", "#e03131", "#0c8599", "#f08c00", "#6741d9",
  "#495057", "#d6336c", "#66a80f", "#4263eb", "#a61e4d", "#087f5b", "#e8590c", "#5f3dc4"];

export function prepared(canvas) {
  const scale = devicePixelRatio || 1;
  const { width, height } = canvas.getBoundingClientRect();
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

// Excluded spans are hatched, tagged spans have a line at their top.
export function drawSpans(context, spans, place, style, top, height) {
  for (const [first, last] of spans.excluded) {
    const from = place(first), wide = Math.max(2, place(last) - from);
    context.save();
    context.beginPath();
    context.rect(from, top, wide, height);
    context.clip();
    context.strokeStyle = style.getPropertyValue("--error");
    context.globalAlpha = 0.45;
    context.lineWidth = 1;
    context.beginPath();
    for (let edge = from - height; edge < from + wide; edge += 7) {
      context.moveTo(edge, top + height);
      context.lineTo(edge + height, top);
    }
    context.stroke();
    context.restore();
  }
  context.fillStyle = style.getPropertyValue("--note");
  for (const [first, last] of spans.tagged) context.fillRect(place(first), top, Math.max(3, place(last) - place(first)), 3);
}

// All steps of an episode on one line: findings, spans, and the step at the cursor.
export function drawTimeline(canvas, steps, row, spans, findings) {
  const { context, width, height } = prepared(canvas);
  const style = getComputedStyle(canvas);
  const place = (step) => 8 + (steps > 1 ? step / (steps - 1) : 0) * (width - 16); // as the slider below
  context.fillStyle = style.getPropertyValue("--line");
  context.fillRect(8, height / 2 - 1, width - 16, 2);
  drawSpans(context, spans, place, style, 1, height - 2);
  for (const finding of findings) {
    context.fillStyle = style.getPropertyValue(`--${finding.level}`);
    context.beginPath();
    context.arc(place(finding.row), height / 2, 3.5, 0, 2 * Math.PI);
    context.fill();
  }
  context.fillStyle = style.getPropertyValue("--text");
  context.fillRect(place(row) - 0.5, 0, 1.5, height);
}

export function drawHistogram(canvas, { edges, counts, words }) {
  const { context, width, height } = prepared(canvas);
  const style = getComputedStyle(canvas);
  context.font = "11px system-ui, sans-serif";
  if (words) {
    context.fillStyle = style.getPropertyValue("--dim");
    context.fillText(words, 2, height / 2 + 4);
    return;
  }
  const most = Math.max(1, ...counts);
  context.fillStyle = style.getPropertyValue("--accent");
  const step = width / Math.max(1, counts.length);
  counts.forEach((count, i) => {
    const tall = count ? Math.max(1.5, (count / most) * (height - 18)) : 0;
    context.fillRect(i * step + 0.5, height - 14 - tall, Math.max(1, step - 1), tall);
  });
  context.fillStyle = style.getPropertyValue("--dim");
  if (edges.length) {
    context.fillText(edges[0].toPrecision(4), 2, height - 2);
    const last = edges[edges.length - 1].toPrecision(4);
    context.fillText(last, width - context.measureText(last).width - 2, height - 2);
  }
}
