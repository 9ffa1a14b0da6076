// One side of the page of an episode: its facts, findings, pictures, and curves. `show(row)` moves all of them to a row.

import { json, series, element, short } from "./net.js";
import { drawCurves } from "./curves.js";
import { cameraPanel } from "./cameras.js";

const FACTS = 12; // shown of an episode
const CHIPS = 30; // findings shown of an episode

export async function episodeSide(api, number, pick) {
  const info = await json(`${api}/episode/${number}`);
  const view = info.view && info.steps ? [await viewPanel(info.view, api, number, pick)] : [];
  const cameras = info.cameras.map(({ path, chunk, rows }) => cameraPanel(api, number, path, chunk, rows));
  const panels = [...view, ...cameras];
  const curves = info.curves.map((column) => curvePanel(api, number, info, column, pick));
  const facts = Object.entries({ ...info.texts, ...info.metadata }).filter(([, value]) => value !== "");
  const chips = element("div", { class: "bar findings" });
  const constants = element("ul", { class: "counts constants" });
  const body = element("section", {},
    element("h1", {}, `Episode ${number}`),
    element("ul", { class: "counts" }, element("li", {}, element("b", {}, info.steps.toLocaleString()), " steps"),
      ...facts.slice(0, FACTS).map(([key, value]) => element("li", {}, `${key} `, element("b", {}, value)))),
    chips,
    element("div", { class: "cameras" }, ...panels.map((panel) => panel.figure)),
    ...curves.map((curve) => curve.box), constants);

  function showFindings() {
    chips.replaceChildren(...info.findings.slice(0, CHIPS).map((finding) => chip(finding, pick)),
      ...(info.findings.length > CHIPS ? [element("span", { class: "dim" }, `and ${info.findings.length - CHIPS} more`)] : []));
    for (const curve of curves) curve.say(info.findings.filter((finding) => finding.column === curve.column));
  }

  // Columns that never change in the episode are one line instead of a curve each.
  function showConstants() {
    for (const curve of curves) {
      const values = curve.constant();
      if (!values) continue;
      curve.box.hidden = true;
      constants.append(element("li", {}, `${curve.column} `, element("b", {}, values.slice(0, 8).map(short).join(", ") + (values.length > 8 ? ", ..." : ""))));
    }
    if (constants.childElementCount) constants.prepend(element("li", {}, "constant:"));
  }

  showFindings();
  return {
    info, body,
    show(row) {
      for (const panel of panels) panel.show(row);
      for (const curve of curves) curve.cursor(row);
    },
    async load(state) {
      await Promise.all(curves.map((curve) => curve.load(state)));
      if (!constants.childElementCount) showConstants();
    },
    draw(spans) { for (const curve of curves) curve.draw(spans); },
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
  if (!document.getElementById(`view-${name}`)) {
    const style = element("link", { id: `view-${name}`, rel: "stylesheet", href: `${place}/view.css` });
    const loaded = new Promise((resolve) => { style.onload = style.onerror = resolve; });
    document.head.append(style);
    await loaded; // a canvas asks for its colours
  }
  const { panel } = await import(`${place}/view.js`);
  return panel(api, number, pick);
}

function chip(finding, pick) {
  return element("button", { class: `chip ${finding.level}`, title: finding.message, onclick: () => pick(finding.row) }, `${finding.name} at ${finding.row}`);
}

function curvePanel(api, number, info, column, pick) {
  const canvas = element("canvas", { role: "img", "aria-label": `curve of ${column}` });
  const cursor = element("div", { class: "cursor" });
  const notes = element("span", { class: "notes" });
  const box = element("div", { class: "curve" }, element("div", { class: "dim name" }, column, notes), element("div", { class: "holder" }, canvas, cursor));
  let data = { values: new Float32Array(0), flags: new Uint8Array(0), n: 0, k: 0 };
  let view = { first: 0, last: 1, rows: 0 };
  let chips = [], shown = 0, asked = 0;

  const point = (event) => {
    const { left, width } = canvas.getBoundingClientRect();
    pick(Math.round(view.first + ((event.clientX - left) / width) * (view.last - view.first - 1)));
  };
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); point(event); });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons) point(event); });

  function say() {
    const flags = data.flags.reduce((all, flag) => all | flag, 0);
    notes.replaceChildren(...chips,
      ...(flags & 1 ? [element("span", { class: "swatch", "data-color": "mark" }, "NaN or infinite")] : []),
      ...(flags & 2 ? [element("span", { class: "swatch", "data-color": "outside" }, "outside its space")] : []));
  }

  function moveCursor(row) {
    shown = Math.min(row, Math.max(info.steps - 1, 0));
    const seen = shown >= view.first && shown < view.last;
    cursor.hidden = !seen;
    const size = view.last - view.first;
    if (seen) cursor.style.left = `calc(1px + (100% - 2px) * ${size > 1 ? (shown - view.first) / (size - 1) : 0.5})`;
  }

  return {
    column, box,
    say(findings) {
      chips = findings.slice(0, 3).map((finding) => chip(finding, pick));
      say();
    },
    async load(state) {
      const mine = ++asked;
      const end = Math.min(state.last, Math.max(info.steps, 1));
      const wanted = { first: state.first, last: state.last, rows: Math.max(end - state.first, 1) };
      const found = await series(`${api}/series/${number}`, { column, first: wanted.first, last: Math.max(end, wanted.first), points: 1500 });
      if (mine !== asked) return; // another zoom was asked for since
      view = wanted;
      data = found;
      say();
    },
    draw(spans) {
      drawCurves(canvas, data, view, spans);
      moveCursor(shown);
    },
    cursor: moveCursor,
    constant: () => (view.rows >= info.steps && data.n > 1 && data.values.every((value, i) => value === data.values[i % data.k]) ? Array.from(data.values.subarray(0, data.k)) : null),
  };
}
