// One episode of the page: its facts, findings, pictures, texts and paths. `show(row)` moves all of them to a row.

import { json, element, address } from "./net.js";
import { cameraPanel } from "./cameras.js";
import { textPanel } from "./texts.js";
import { pathPanel } from "./paths.js";

const FACTS = 12; // shown of an episode
const CHIPS = 30; // findings shown of an episode
const GAP = 10, CAPTION = 36, SMALLEST = 160; // of cameras, in CSS pixels
const WORTH = 1.25; // times larger below one another

// `page` is {pick(row), save(panel), exact}. `name` is that of the dataset, shown where it is another than the page's.
export async function episodeSide(name, number, page, label) {
  const api = `api/${encodeURIComponent(name)}`;
  const info = await json(`${api}/episode/${number}`);
  const view = info.view && info.steps ? [await (await viewScript(info.view)).panel(api, number, page.pick)] : [];
  const cameras = info.cameras.map((camera) => ({ ...cameraPanel(api, number, camera, page), size: camera.size }));
  const paths = info.steps ? Object.entries(info.columns).filter(([, facts]) => facts.path.length).map(([column, facts]) => pathPanel(api, number, column, facts, page)) : [];
  const texts = info.steps ? info.text_columns.map((column) => textPanel(api, number, column, page)) : [];
  const panels = [...view, ...cameras, ...paths, ...texts];
  const facts = Object.entries(info.metadata).filter(([, value]) => value !== "");
  const chips = element("div", { class: "bar findings" });
  const pictures = element("div", { class: "cameras" }, ...[...view, ...cameras, ...paths].map((panel) => panel.figure));
  const body = element("section", {},
    element("h1", {}, label),
    element("ul", { class: "counts" }, element("li", {}, element("b", {}, info.steps.toLocaleString("en")), info.steps === 1 ? " step" : " steps"),
      ...facts.slice(0, FACTS).map(([key, value]) => element("li", {}, `${key} `, element("b", {}, value)))),
    chips,
    pictures,
    ...texts.map((text) => text.figure));

  function showFindings() {
    chips.replaceChildren(...info.findings.slice(0, CHIPS).map((finding) => chip(finding, page.pick)),
      ...(info.findings.length > CHIPS ? [element("span", { class: "dim" }, `and ${info.findings.length - CHIPS} more`)] : []));
  }

  showFindings();
  return {
    name, number, api, info, body, label,
    show(row) { for (const panel of panels) panel.show(row); },
    redraw() {
      if (!view.length && cameras.length) fill(pictures, cameras);
      for (const panel of panels) panel.redraw?.();
    },
    changes: (column) => json(address(`${api}/changes/${number}`, { column })),
    values: (row) => json(`${api}/values/${number}/${row}`),
    async findings() {
      info.findings = (await json(`${api}/episode/${number}`)).findings;
      showFindings();
    },
    leave() { for (const panel of panels) panel.leave(); },
  };
}

// Cameras as large as the height allows that nothing else needs: in as many columns as make the smallest largest.
function fill(holder, cameras) {
  const pane = holder.closest(".seen"), style = getComputedStyle(pane);
  if (style.overflowY !== "auto") { holder.style.removeProperty("--camera"); return; } // one column on a phone: the style sheet says how wide
  const wide = holder.clientWidth, used = pane.lastElementChild.getBoundingClientRect().bottom - pane.firstElementChild.getBoundingClientRect().top - holder.offsetHeight;
  const high = Math.max(pane.clientHeight - 24 - used, pane.clientHeight * 0.4);
  const shape = Math.min(...cameras.map(({ size: [height, width] }) => width / height)); // of the tallest
  const widths = cameras.map((_, i) => Math.min((wide - i * GAP) / (i + 1), (high / Math.ceil(cameras.length / (i + 1)) - CAPTION) * shape));
  const most = Math.max(...widths), chosen = widths.findLast((each) => each * WORTH > most); // side by side is preferred
  holder.style.setProperty("--camera", `${Math.floor(Math.max(chosen, SMALLEST))}px`);
}

// The script of a view, and its style, which belong to the distribution that offers it.
export async function viewScript(name) {
  const place = `/views/${encodeURIComponent(name)}`;
  await stylesheet(`view-${name}`, `${place}/view.css`);
  return import(`${place}/view.js`);
}

// Load a style once. A canvas asks for its colours, so the style has to be there.
export async function stylesheet(id, href) {
  if (document.getElementById(id)) return;
  const style = element("link", { id, rel: "stylesheet", href });
  const loaded = new Promise((resolve) => { style.onload = style.onerror = resolve; });
  document.head.append(style);
  await loaded;
}

export function chip(finding, pick) {
  return element("button", { class: `chip ${finding.level}`, title: finding.message, onclick: () => pick(finding.row) }, `${finding.name} at ${finding.row}`);
}
