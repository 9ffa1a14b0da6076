// A dataset: what it is and what is wrong with it, then its episodes, columns and metadata.

import { json, element, short, counted, bytes, address, picture, remember } from "./net.js";
import { histogram } from "./histogram.js";
import { offerInPalette } from "./palette.js";
import { episodesPanel, within } from "./episodes.js";
import { findingsPanel, leftOutPanel } from "./findings.js";
import { shareMenu } from "./share.js";
import { thumbnail } from "./thumbnails.js";

const LONG = 200; // characters of a value of the metadata
const TABS = { episodes: "Episodes", columns: "Columns", metadata: "Spaces and metadata" };

export async function datasetPage(page, name, options) {
  const api = `api/${encodeURIComponent(name)}`, place = `#/${encodeURIComponent(name)}`;
  const info = await json(`${api}/info`);
  const state = { where: "", sort: "", descending: "", finding: "", seed: "", view: "", tab: "episodes" };
  for (const key of Object.keys(state)) state[key] = options.get(key) ?? state[key];
  state.column = options.getAll("column"); // shown; none: those that the server thinks of
  let left = false;
  const is = () => !left;
  const findings = findingsPanel(api, name, is, (finding) => { state.finding = finding; open("episodes"); episodes.refresh(); });
  const episodes = episodesPanel(api, name, info, state, is, keep);
  const counts = element("ul", { class: "counts" },
    element("li", {}, "format ", element("b", {}, info.format)), element("li", {}, element("b", {}, counted(info.episodes, "episode"))),
    element("li", {}, element("b", {}, counted(info.steps, "step"))), element("li", {}, element("b", {}, counted(info.columns.length, "column"))));
  const panels = element("div", { class: "panels" }, findings.body);
  const frames = element("div", {});
  const tabs = element("div", { class: "tabs", role: "tablist", "aria-label": "parts of the dataset" });
  const shown = element("div", { role: "tabpanel", id: "tab" });

  function review() {
    const { where, sort, descending, finding } = state;
    location.hash = address(`${place}/review`, { where, sort, descending, finding });
  }

  function keep() {
    const { tab, ...rest } = state;
    remember(place, { ...rest, tab: tab === "episodes" ? "" : tab });
  }

  const bodies = {
    episodes: () => episodes.body,
    columns: () => columnTable(api, info),
    metadata: () => facts({ observation_space: info.spaces.observations, action_space: info.spaces.actions, ...info.metadata }),
  };
  const made = {};
  function open(tab) {
    state.tab = tab;
    keep();
    tabs.replaceChildren(...Object.entries(TABS).map(([key, title]) => element("button", {
      role: "tab", id: `tab-${key}`, "aria-selected": String(key === tab), "aria-controls": "tab", tabindex: key === tab ? "0" : "-1", onclick: () => open(key),
      onkeydown: (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], keys = Object.keys(TABS);
        if (!step) return;
        event.preventDefault();
        open(keys[(keys.indexOf(key) + step + keys.length) % keys.length]);
        tabs.querySelector("[tabindex='0']").focus();
      },
    }, title)));
    shown.setAttribute("aria-labelledby", `tab-${tab}`);
    shown.replaceChildren((made[tab] ||= bodies[tab]()));
  }

  page.replaceChildren(
    element("div", { class: "head" }, element("div", {}, element("h1", {}, info.name), element("div", { class: "dim location" }, info.location)),
      element("div", { class: "actions" }, element("button", { id: "review", onclick: review }, "Review"), shareMenu(api, info, () => state))),
    counts, panels, frames, tabs, shown);
  open(TABS[state.tab] ? state.tab : "episodes");

  async function overview() {
    const found = await json(`${api}/overview`).catch((error) => error);
    if (left) return;
    if (found instanceof Error) { frames.replaceChildren(element("p", { class: "error", role: "alert" }, found.message)); return; }
    if (found.bytes !== null) counts.append(element("li", {}, element("b", {}, bytes(found.bytes))));
    if (found.ends) counts.append(element("li", {}, `episode ends: ${found.ends}`));
    if (found.left_out.length) panels.append(leftOutPanel(found));
    for (const [path, texts] of Object.entries(found.texts)) {
      if (texts.length) panels.append(panel(path, "texts at the start of episodes", histogram({ texts }, path)));
    }
    const title = info.cameras.length ? "First and last pictures of episodes that differ" : "Some episodes";
    if (found.frames.length) frames.replaceChildren(element("h2", {}, title), element("div", { class: "frames" }, ...found.frames.map(framesOf)));
  }

  const framesOf = ({ episode, camera, steps, rows }) => element("a", { href: `${place}/${episode}`, "aria-label": `episode ${episode}` },
    ...(camera ? rows.map((row) => picture({ alt: `row ${row} of ${camera}`, src: address(`${api}/picture/${episode}/${row}`, { camera }) })) : [thumbnail(api, info, episode, steps)]), element("span", { class: "dim" }, `episode ${episode}`));

  async function distributions() {
    const known = episodes.known().map((column) => column.name);
    for (const [column, title, about] of [["total_steps", "Length", "steps of an episode"], ["return", "Return", "sum of the rewards of an episode"]]) {
      if (!known.includes(column)) continue;
      try {
        const { [column]: found } = await json(`${api}/histograms`, { column });
        if (left) return;
        panels.insertBefore(panel(title, about, histogram(found, title, (low, high, whole) => { state.where = within(state.where, column, low, high, whole); open("episodes"); episodes.refresh(); })), panels.children[column === "return" ? 2 : 1] || null);
      } catch (error) {
        if (!left) panels.append(panel(title, about, element("p", { class: "error" }, error.message)));
      }
    }
  }

  offerInPalette(name, () => [
    ...Object.entries(TABS).map(([key, title]) => ({ text: title, about: "part of this page", act: () => open(key) })),
    { text: "Review", about: "look at episodes one by one", act: review },
    ...findings.names().map((finding) => ({ text: finding, about: "finding: its episodes", act: () => { state.finding = finding; open("episodes"); episodes.refresh(); } })),
    ...episodes.known().map(({ name: column, about }) => ({ text: column, about: `sort by: ${about}`, act: () => { open("episodes"); episodes.sort(column); } }))]);
  await episodes.refresh();
  overview();
  distributions();
  findings.check(episodes.refresh);
  addEventListener("focus", episodes.refresh); // marks of others, and of another window
  return () => { left = true; offerInPalette(name, () => []); removeEventListener("focus", episodes.refresh); };
}

function panel(title, about, ...children) {
  return element("section", { class: "panel" }, element("h2", {}, title), element("p", { class: "dim about" }, about), ...children);
}

// Columns with their figures, which are computed when the tab is opened.
function columnTable(api, info) {
  const body = element("tbody", {});
  const heads = ["column", "dtype", "shape", "unit", "rows", "mean", "deviation", "least", "greatest", "missing", "histogram"];
  const numeric = new Set(["mean", "deviation", "least", "greatest", "missing"]);
  const said = element("p", { class: "dim", role: "status" }, "counting...");
  const table = element("div", { id: "columns" }, said, element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { class: numeric.has(head) ? "number" : "" }, head)))), body)));
  const rows = { step: "a step", boundary: "a step and the end", episode: "an episode" };
  const line = (column, each) => element("tr", {},
    element("td", { class: "wide" }, each ? each.name : column.path), element("td", {}, column.dtype), element("td", {}, column.shape.join(" × ") || "one"),
    element("td", {}, column.unit), element("td", {}, column.kind === "ragged" ? `many ${rows[column.align]}` : rows[column.align]),
    ...["mean", "std", "min", "max"].map((figure) => element("td", { class: "number" }, each ? short(each[figure]) : "")),
    element("td", { class: each?.missing ? "number error" : "number" }, each?.missing ? short(each.missing) : ""),
    element("td", { class: "small" }, each ? histogram(each, each.name) : element("span", { class: "dim" }, column.kind === "camera" ? "pictures" : column.dtype === "text" ? "text" : "")));
  body.replaceChildren(...info.columns.map((column) => line(column)));
  json(`${api}/figures`).then((found) => {
    const of = (path) => found.columns.filter((each) => each.path === path);
    body.replaceChildren(...info.columns.flatMap((column) => (of(column.path).length ? of(column.path).map((each) => line(column, each)) : [line(column)])));
    said.textContent = found.episodes < info.episodes ? `figures of ${counted(found.episodes, "episode")}, spread evenly; missing: values that are NaN or infinite` : "figures of all episodes; missing: values that are NaN or infinite";
  }).catch((error) => { said.textContent = error.message; });
  return table;
}

function facts(entries) {
  const rows = Object.entries(entries).filter(([, value]) => value).map(([key, value]) => element("tr", {}, element("th", { scope: "row" }, key), element("td", { class: "wide" }, folded(value))));
  return element("div", { class: "scroll" }, rows.length ? element("table", {}, element("tbody", {}, ...rows)) : element("p", { class: "message" }, "no metadata"));
}

// Long text opens by a click.
function folded(text) {
  return text.length <= LONG ? text : element("details", {}, element("summary", {}, `${text.slice(0, LONG - 40)}...`), text);
}
