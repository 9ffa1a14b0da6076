// Histograms, spans and the line of all steps on a canvas, sharp on any screen, in the colours of the page.

const WORDS = 11; // height of the times below the line of all steps
const EVERY = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 18000, 86400]; // seconds

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

// All steps on one line, from the first to the last place of the slider above: findings, spans, the step at the cursor, and times.
export function drawTimeline(canvas, limits, rate, row, spans, findings) {
  const { context, width, height: whole } = prepared(canvas), height = whole - WORDS;
  const style = getComputedStyle(canvas), [first, last] = limits;
  const place = (step) => 8 + (last > first ? (step - first) / (last - first) : 0) * (width - 16);
  context.fillStyle = style.getPropertyValue("--edge");
  context.fillRect(8, height / 2 - 1, width - 16, 2);
  times(context, place, first / rate, last / rate, rate, width, height, style.getPropertyValue("--dim"));
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

function times(context, place, first, last, rate, width, height, color) {
  const tick = EVERY.find((each) => (last - first) / each <= width / 70) ?? (last - first || 1);
  context.fillStyle = color;
  context.font = "10px system-ui, sans-serif";
  context.textAlign = "center";
  for (let i = Math.ceil(first / tick); i * tick <= last; i++) {
    const x = place(i * tick * rate), text = tick >= 3600 ? `${Number(((i * tick) / 3600).toFixed(1))} h` : tick >= 60 || i * tick >= 60 ? `${Math.floor((i * tick) / 60)}:${String(Math.round((i * tick) % 60)).padStart(2, "0")}` : `${Number((i * tick).toFixed(2))} s`;
    context.fillRect(x, height / 2 - 3, 1, 6);
    if (x > 12 && x < width - 12) context.fillText(text, x, height + WORDS - 2);
  }
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
