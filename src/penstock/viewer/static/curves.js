// Curves and histograms on a canvas, sharp on any screen, in the colours of the page.

const COLORS = ["#1c7ed6", "#f76707", "#2f9e44", "#ae3ec9", "#e03131", "#0c8599", "#f08c00", "#6741d9",
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

// Draw rows `view.first` to `view.last` of a series that has `rows` rows in all; mark the row at the cursor, and spans of NaN.
export function drawCurves(canvas, series, view, row) {
  const { context, width, height } = prepared(canvas);
  const { values, n, k } = series;
  let low = Infinity, high = -Infinity;
  for (const value of values) if (Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low === high) { low -= 1; high += 1; }
  const x = (i) => (n > 1 ? (i / (n - 1)) * (width - 2) + 1 : width / 2);
  const y = (value) => height - 6 - ((value - low) / (high - low)) * (height - 20);
  const style = getComputedStyle(canvas);
  context.fillStyle = style.getPropertyValue("--mark");
  for (let i = 0; i < n; i++) {
    let bad = false;
    for (let j = 0; j < k; j++) bad ||= !Number.isFinite(values[i * 2 * k + j]);
    if (bad) context.fillRect(x(i) - 1, 0, Math.max(2, width / n), height);
  }
  context.lineWidth = 1.2;
  for (let j = 0; j < k; j++) {
    context.strokeStyle = COLORS[j % COLORS.length];
    context.beginPath();
    let drawing = false;
    for (let i = 0; i < n; i++) {
      const least = values[i * 2 * k + j], most = values[(i * 2 + 1) * k + j];
      if (!Number.isFinite(least)) { drawing = false; continue; }
      if (drawing) context.lineTo(x(i), y(least)); else context.moveTo(x(i), y(least));
      if (most !== least) context.lineTo(x(i), y(most));
      drawing = true;
    }
    context.stroke();
  }
  context.fillStyle = style.getPropertyValue("--dim");
  context.font = "11px system-ui, sans-serif";
  if (Number.isFinite(high)) {
    context.fillText(high.toPrecision(4), 4, 11);
    context.fillText(low.toPrecision(4), 4, height - 3);
  }
  if (row >= view.first && row < view.last) {
    const place = x(view.last - view.first > 1 ? ((row - view.first) / (view.last - view.first - 1)) * (n - 1) : 0);
    context.strokeStyle = style.getPropertyValue("--text");
    context.beginPath();
    context.moveTo(place, 0);
    context.lineTo(place, height);
    context.stroke();
  }
}

export function drawHistogram(canvas, { edges, counts }) {
  const { context, width, height } = prepared(canvas);
  const style = getComputedStyle(canvas);
  const most = Math.max(1, ...counts);
  context.fillStyle = style.getPropertyValue("--accent");
  const step = width / Math.max(1, counts.length);
  counts.forEach((count, i) => {
    const tall = count ? Math.max(1.5, (count / most) * (height - 18)) : 0;
    context.fillRect(i * step + 0.5, height - 14 - tall, Math.max(1, step - 1), tall);
  });
  context.fillStyle = style.getPropertyValue("--dim");
  context.font = "11px system-ui, sans-serif";
  if (edges.length) {
    context.fillText(edges[0].toPrecision(4), 2, height - 2);
    const last = edges[edges.length - 1].toPrecision(4);
    context.fillText(last, width - context.measureText(last).width - 2, height - 2);
  }
}
