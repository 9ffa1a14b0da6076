// A small picture of an episode: of its first camera, from the view of its domain, or the curve of its first column.
// It is made when it can be seen, and what reads a whole episode is made one after another.

import { address, element, picture, series } from "./net.js";
import { shape } from "./histogram.js";
import { viewScript } from "./side.js";

const STOPS = 12; // pictures that the mouse moves through, from left to right
const POINTS = 120, LINES = 6; // of a curve
let before = Promise.resolve();
const works = new WeakMap();
const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    before = before.then(() => (target.isConnected ? works.get(target)() : null))
      .catch((error) => target.replaceChildren(element("span", { class: "dim" }, error.message)));
  }
});

export function thumbnail(api, info, e, steps) {
  const holder = element("div", { class: "thumbnail" });
  const camera = info.cameras[0], column = info.curves[0];
  if (!steps) holder.append(element("span", { class: "dim" }, "no steps"));
  else if (camera) {
    const at = (share) => address(`${api}/picture/${e}/${Math.min(steps - 1, Math.floor(share * steps))}`, { camera });
    const shown = picture({ src: at(0.5) });
    const go = (share) => { if (shown.getAttribute("src") !== at(share)) shown.src = at(share); };
    holder.append(shown);
    holder.addEventListener("pointermove", ({ offsetX }) => go(Math.round((offsetX / holder.clientWidth) * STOPS) / STOPS));
    holder.addEventListener("pointerleave", () => go(0.5));
  } else if (info.view || column) {
    holder.inert = true; // a picture, whatever the panel can do
    works.set(holder, () => (info.view ? drawn(holder, info.view, api, e, steps) : curve(holder, api, e, column)));
    seen.observe(holder);
  } else holder.append(element("span", { class: "dim" }, "no picture"));
  return holder;
}

async function drawn(holder, view, api, e, steps) {
  const { panel } = await viewScript(view);
  const made = await panel(api, e, () => {});
  holder.append(made.figure);
  made.show(steps >> 1);
  made.leave();
}

async function curve(holder, api, e, column) {
  const { values, n, k } = await series(`${api}/series/${e}`, { column, points: POINTS });
  const known = values.filter(Number.isFinite);
  const low = known.reduce((least, value) => Math.min(least, value), Infinity), high = known.reduce((most, value) => Math.max(most, value), -Infinity);
  const svg = shape("svg", { viewBox: `0 0 ${Math.max(n - 1, 1)} 100`, preserveAspectRatio: "none", class: "lines", role: "img", "aria-label": column });
  const y = (i, side, j) => 96 - ((values[(i * 2 + side) * k + j] - low) / (high - low || 1)) * 92;
  for (let j = 0; j < Math.min(k, LINES); j++) {
    let d = "", open = false;
    for (let i = 0; i < n; i++) {
      const [from, to] = [y(i, 0, j), y(i, 1, j)];
      d += Number.isFinite(from) ? `${open ? "L" : "M"}${i} ${from}${to === from ? "" : `V${to}`}` : "";
      open = Number.isFinite(from);
    }
    const line = shape("path", { d });
    line.style.stroke = `var(--curve${j})`;
    svg.append(line);
  }
  holder.append(svg, element("span", { class: "dim" }, column));
}
