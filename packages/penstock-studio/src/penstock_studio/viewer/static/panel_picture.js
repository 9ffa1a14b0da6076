// A panel as a PNG file: a picture alone, or a plot with its title and the values at the row.

import { element } from "./net.js";

export function savePanel(panel, place) {
  const canvas = panel.canvas();
  if (!canvas) return;
  const name = `${place} ${panel.title}`.replaceAll(/[^\p{L}\p{N}.-]+/gu, "_");
  (panel.exact ? canvas : framed(canvas, panel)).toBlob((blob) => {
    const url = URL.createObjectURL(blob);
    const link = element("a", { href: url, download: `${name}.png` });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }, "image/png");
}

function framed(canvas, panel) {
  const scale = devicePixelRatio || 1, style = getComputedStyle(document.body), line = 18 * scale;
  const legend = panel.legend?.() ?? [];
  const made = element("canvas", { width: String(canvas.width), height: String(canvas.height + line * (legend.length ? 2 : 1) + 10 * scale) });
  const context = made.getContext("2d");
  context.fillStyle = style.backgroundColor;
  context.fillRect(0, 0, made.width, made.height);
  context.fillStyle = style.color;
  context.font = `600 ${13 * scale}px system-ui, sans-serif`;
  context.fillText(panel.title, 8 * scale, line * 0.8);
  context.font = `${11 * scale}px system-ui, sans-serif`;
  let x = 8 * scale;
  for (const { color, text } of legend) {
    if (color) { context.fillStyle = color; context.fillRect(x, line * 1.35, 9 * scale, 9 * scale); x += 13 * scale; }
    context.fillStyle = style.color;
    context.fillText(text, x, line * 1.75);
    x += context.measureText(text).width + 14 * scale;
  }
  const top = made.height - canvas.height;
  context.drawImage(canvas, 0, top);
  const head = panel.heads?.();
  if (head !== null && head !== undefined) {
    context.fillStyle = style.color;
    context.fillRect(head, top, scale, canvas.height - 24 * scale);
  }
  return made;
}
