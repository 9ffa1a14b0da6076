// One episode of the page: its facts, findings, pictures, texts and paths. `show(row)` moves all of them to a row.

import { json, element, address } from "./net.js";
import { cameraPanel } from "./cameras.js";
import { textPanel } from "./texts.js";
import { pathPanel } from "./paths.js";

const FACTS = 12; // shown of an episode
const CHIPS = 30; // findings shown of an episode

// `page` is {pick(row), save(panel), exact}. `name` is that of the dataset, shown where it is another than the page's.
export async function episodeSide(name, number, page, label) {
  const api = `api/${encodeURIComponent(name)}`;
  const info = await json(`${api}/episode/${number}`);
  const view = info.view && info.steps ? [await viewPanel(info.view, api, number, page.pick)] : [];
  const cameras = info.cameras.map((camera) => cameraPanel(api, number, camera, page));
  const paths = info.steps ? Object.entries(info.columns).filter(([, facts]) => facts.path.length).map(([column, facts]) => pathPanel(api, number, column, facts, page)) : [];
  const texts = info.steps ? info.text_columns.map((column) => textPanel(api, number, column, page)) : [];
  const panels = [...view, ...cameras, ...paths, ...texts];
  const facts = Object.entries(info.metadata).filter(([, value]) => value !== "");
  const chips = element("div", { class: "bar findings" });
  const body = element("section", {},
    element("h1", {}, label),
    element("ul", { class: "counts" }, element("li", {}, element("b", {}, info.steps.toLocaleString()), " steps"),
      ...facts.slice(0, FACTS).map(([key, value]) => element("li", {}, `${key} `, element("b", {}, value)))),
    chips,
    element("div", { class: "cameras" }, ...[...view, ...cameras, ...paths].map((panel) => panel.figure)),
    ...texts.map((text) => text.figure));

  function showFindings() {
    chips.replaceChildren(...info.findings.slice(0, CHIPS).map((finding) => chip(finding, page.pick)),
      ...(info.findings.length > CHIPS ? [element("span", { class: "dim" }, `and ${info.findings.length - CHIPS} more`)] : []));
  }

  showFindings();
  return {
    name, number, api, info, body, label,
    show(row) { for (const panel of panels) panel.show(row); },
    redraw() { for (const panel of panels) panel.redraw?.(); },
    changes: (column) => json(address(`${api}/changes/${number}`, { column })),
    values: (row) => json(`${api}/values/${number}/${row}`),
    async findings() {
      info.findings = (await json(`${api}/episode/${number}`)).findings;
      showFindings();
    },
    leave() { for (const panel of panels) panel.leave(); },
  };
}

// The panel of a view: its script and its style belong to the distribution that offers it.
async function viewPanel(name, api, number, pick) {
  const place = `/views/${encodeURIComponent(name)}`;
  await stylesheet(`view-${name}`, `${place}/view.css`);
  const { panel } = await import(`${place}/view.js`);
  return panel(api, number, pick);
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
