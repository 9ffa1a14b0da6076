// The rows of a batch in their episodes: each episode as a bar with the rows that the batch took, those with most first.

import { json, element, address, picture } from "./net.js";

const PAGE = 50;

export async function ticketPage(page, digits) {
  const found = await json(`loader/ticket/${encodeURIComponent(digits)}`);
  const body = element("tbody", {});
  const more = element("button", { id: "more", onclick: () => show() }, "More episodes");
  let shown = 0;

  function show() {
    body.append(...found.episodes.slice(shown, shown + PAGE).map(line));
    shown = Math.min(shown + PAGE, found.episodes.length);
    more.hidden = shown >= found.episodes.length;
  }

  const longest = Math.max(1, ...found.episodes.map((each) => each.steps));
  const parts = [...new Set(found.episodes.map((each) => each.part))].sort();
  const mixed = parts.length > 1;

  function line(each) {
    const [first, rows] = each.spans[0];
    const link = (row) => (each.page ? `#/${encodeURIComponent(each.page)}/${each.episode}?row=${Math.max(row, 0)}` : undefined);
    const open = () => { if (each.page) location.hash = link(first); };
    const thumb = each.camera && picture({ class: "thumb", src: address(`api/${encodeURIComponent(each.page)}/picture/${each.episode}/${Math.max(first, 0)}`, { camera: each.camera }) });
    const samples = new Set(each.spans.map((span) => span[2])).size;
    return element("tr", { class: "row", tabindex: "0", onclick: open, onkeydown: (event) => { if (event.key === "Enter") open(); } },
      ...(cameras ? [element("td", {}, thumb || "")] : []),
      ...(mixed ? [element("td", {}, each.part)] : []),
      element("td", { class: "number" }, element("a", { href: link(first) }, String(each.episode))),
      element("td", { class: "number" }, samples.toLocaleString()),
      element("td", { class: "spans" }, bar(each, longest, parts.indexOf(each.part))),
      element("td", {}, steps(each.spans)));
  }

  const cameras = found.episodes.some((each) => each.camera);
  const heads = [...(cameras ? ["first picture"] : []), ...(mixed ? ["part"] : []), "episode", "samples", "rows in the episode", "steps"];
  page.replaceChildren(
    element("h1", {}, "Batch"),
    element("div", { class: "dim location" }, `ticket ${found.ticket} of ${found.place}`),
    element("ul", { class: "counts" },
      element("li", {}, element("b", {}, found.count.toLocaleString()), ` positions from ${found.position.toLocaleString()}`),
      element("li", {}, element("b", {}, found.episodes.length.toLocaleString()), " episodes"),
      element("li", {}, element("b", {}, found.lines.toLocaleString()), " ranges of rows"),
      element("li", {}, element("a", { href: address("#plan", { position: found.position }) }, "this place in the plan"))),
    element("div", { class: "scroll rows", id: "rows" }, element("table", {},
      element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { class: ["episode", "samples"].includes(head) ? "number" : "" }, head)))), body)),
    element("div", { class: "bar" }, more));
  show();
  return () => {};
}

// The whole episode, and the rows of the batch in it. All bars have one scale.
function bar(each, longest, part) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const rect = (values) => {
    const made = document.createElementNS(svg.namespaceURI, "rect");
    for (const [name, value] of Object.entries(values)) made.setAttribute(name, value);
    svg.append(made);
  };
  for (const [name, value] of Object.entries({ viewBox: "0 0 400 14", preserveAspectRatio: "none", role: "img", "aria-label": `${each.steps} steps`, class: "spans" })) svg.setAttribute(name, value);
  const scale = 400 / longest;
  if (each.steps) rect({ x: 0, y: 4, width: each.steps * scale, height: 6, fill: "currentColor", "fill-opacity": 0.18 });
  for (const [step, rows] of each.spans) rect({ x: Math.max(step, 0) * scale, y: 1, width: Math.max(rows * scale, 2), height: 12, class: `color${part % 12}`, "fill-opacity": 0.6 });
  return svg;
}

function steps(spans) {
  const texts = spans.slice(0, 6).map(([step, rows]) => (rows > 1 ? `${step}-${step + rows - 1}` : String(step)));
  return texts.join(", ") + (spans.length > 6 ? `, and ${spans.length - 6} more` : "");
}
