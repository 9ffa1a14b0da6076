// A histogram that answers: the bin under the mouse, or the one that keys choose, says its range and its count. A click, a
// drag over several bins, or Enter picks the range, if `pick(low, high, whole)` is given; `whole` is whether `high` belongs to it.

import { element, short } from "./net.js";

const SPACE = "http://www.w3.org/2000/svg";

export function histogram(found, label, pick) {
  if (found.texts) return texts(found.texts, label, pick);
  const { edges, counts, ends = [edges[0], edges[edges.length - 1]], whole = false } = found;
  const said = element("output", { class: "reading" });
  const body = element("div", { class: "histogram" });
  if (found.words || !counts.length || ends[0] === ends[1]) {
    said.textContent = found.words || (counts.length ? `all ${short(ends[0]) || "no"}` : "no values");
    body.append(said);
    return body;
  }
  const total = counts.length, most = Math.max(1, ...counts);
  const every = `${short(ends[0])} to ${short(ends[1])}`;
  const named = (low, high) => (whole && high - low === 1 ? short(low) : `${short(low)} to ${short(whole ? high - 1 : high)}`);
  const svg = shape("svg", { viewBox: `0 0 ${total} 100`, preserveAspectRatio: "none", class: "bars", "aria-label": `${label}: ${every}` });
  const range = shape("rect", { class: "range", y: 0, height: 100, width: 0, x: 0 });
  const tall = (count) => (count ? Math.max(3, (count / most) * 100) : 0);
  svg.append(range, shape("path", { d: counts.map((count, i) => `M${i + 0.06} 100v-${tall(count)}h.88v${tall(count)}z`).join("") }));
  let first = 0, last = 0, dragged = false;

  function show(from, to) {
    [first, last] = [from, to].map((bin) => Math.min(total - 1, Math.max(0, bin))).sort((one, other) => one - other);
    range.setAttribute("x", first);
    range.setAttribute("width", last + 1 - first);
    const sum = counts.slice(first, last + 1).reduce((all, count) => all + count, 0);
    said.textContent = `${named(edges[first], edges[last + 1])}: ${sum.toLocaleString("en")}`;
    svg.setAttribute("aria-valuenow", first);
    svg.setAttribute("aria-valuetext", said.textContent);
  }

  function rest() {
    range.setAttribute("width", 0);
    said.textContent = every;
  }

  const under = (event) => {
    const { left, width } = svg.getBoundingClientRect();
    return Math.min(total - 1, Math.max(0, Math.floor(((event.clientX - left) / width) * total)));
  };
  const choose = () => pick(edges[first], edges[last + 1], last + 1 === total);
  svg.addEventListener("pointermove", (event) => show(dragged === false ? under(event) : dragged, under(event)));
  svg.addEventListener("pointerleave", () => { if (dragged === false) rest(); });
  svg.setAttribute("role", pick ? "slider" : "img");
  if (pick) {
    for (const [name, value] of Object.entries({ tabindex: 0, "aria-valuemin": 0, "aria-valuemax": total - 1, "aria-valuenow": 0, "aria-valuetext": every })) svg.setAttribute(name, value);
    svg.addEventListener("pointerdown", (event) => { dragged = under(event); svg.setPointerCapture(event.pointerId); show(dragged, dragged); });
    svg.addEventListener("pointerup", () => { if (dragged !== false) { dragged = false; choose(); } });
    svg.addEventListener("pointercancel", () => { dragged = false; rest(); });
    svg.addEventListener("focus", () => show(first, last));
    svg.addEventListener("blur", rest);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) show(event.shiftKey ? first : last + step, last + step);
      else if (event.key === "Enter") choose();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }
  rest();
  body.append(svg, said);
  return body;
}

// Different texts, those of most episodes first.
function texts(found, label, pick) {
  const most = Math.max(1, ...found.map(([, count]) => count));
  return element("ul", { class: "texts", "aria-label": label }, ...found.map(([text, count]) =>
    element("li", {}, element("meter", { max: most, value: count, "aria-hidden": true }), element("span", { class: "dim" }, count.toLocaleString("en")),
      pick ? element("button", { class: "link", onclick: () => pick(text) }, text || "(empty)") : element("span", {}, text || "(empty)"))));
}

export function shape(tag, attributes) {
  const made = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
