// An episode, or two side by side: pictures of all cameras, scenes and curves, at one row.
//
// The row is the only state of the page. Keys, the slider, the mouse on a curve and the clock set it; pictures and
// cursors follow. The address follows when the row rests, because browsers limit how often it may change.

import { json, element, address, remember } from "./net.js";
import { drawTimeline } from "./curves.js";
import { curatePanel } from "./curate.js";
import { episodeSide } from "./side.js";

const REST = 150; // milliseconds
const NO_SPANS = { tagged: [], excluded: [] };

export async function episodePage(page, name, number, options) {
  const api = `api/${encodeURIComponent(name)}`;
  const place = `#/${encodeURIComponent(name)}`;
  const other = options.get("with");
  const pick = (row) => go(row);
  const sides = [await episodeSide(api, number, pick)];
  if (other !== null) sides.push(await episodeSide(api, Number(other), pick));
  const { info } = sides[0];
  const last = Math.max(...sides.map((each) => each.info.steps - 1), 0);
  const state = { row: Math.min(Math.max(Number(options.get("row") || 0), 0), last), playing: false, first: 0, last: last + 1 };
  const slider = element("input", { type: "range", min: "0", max: String(last), "aria-label": "row", oninput: () => go(Number(slider.value)) });
  const line = element("canvas", { class: "timeline", role: "img", "aria-label": "findings and spans of the episode" });
  const said = element("span", { id: "row", class: "dim" });
  const play = element("button", { id: "play", onclick: () => toggle() }, "Play");
  const beside = element("input", { type: "number", min: "0", max: String(info.episodes - 1), placeholder: "episode", "aria-label": "episode to compare", value: other ?? "",
    onchange: () => { location.hash = address(`${place}/${number}`, { row: state.row, with: beside.value }); } });
  const panel = curatePanel(api, number, info, () => state.row, pick, () => redraw());
  page.replaceChildren(
    element("div", { class: `sides ${sides.length > 1 ? "two" : ""}` }, ...sides.map((each) => each.body)),
    element("div", { class: "player" }, line, slider,
      element("div", { class: "bar" }, play, said,
        element("button", { disabled: number < 1, onclick: () => move(-1) }, "Previous episode"),
        element("button", { disabled: number >= info.episodes - 1, onclick: () => move(1) }, "Next episode"),
        element("label", {}, "compare with ", beside),
        element("span", { class: "dim keys" }, element("kbd", {}, "←"), " ", element("kbd", {}, "→"), " step, ", element("kbd", {}, "space"), " play, ",
          element("kbd", {}, "+"), " ", element("kbd", {}, "-"), " zoom, ", element("kbd", {}, "n"), " ", element("kbd", {}, "p"), " episode")),
      panel.body));

  let left = false, resting = 0;
  function move(step) {
    if (number + step >= 0 && number + step < info.episodes) location.hash = `${place}/${number + step}`;
  }

  function go(row) {
    state.row = Math.min(Math.max(row, 0), last);
    slider.value = String(state.row);
    said.textContent = `step ${state.row} of ${last} (${(state.row / info.rate).toFixed(2)} s at ${info.rate.toPrecision(3)}/s)`;
    for (const each of sides) each.show(state.row);
    timeline();
    clearTimeout(resting);
    resting = setTimeout(() => remember(`${place}/${number}`, { row: state.row, with: other }), REST);
  }

  function timeline() {
    drawTimeline(line, last + 1, state.row, panel.spans(), info.findings);
  }

  function redraw() {
    sides.forEach((each, i) => each.draw(i ? NO_SPANS : panel.spans()));
    timeline();
  }

  async function zoom(factor) {
    const size = Math.min(last + 1, Math.max(10, Math.round((state.last - state.first) * factor)));
    state.first = Math.min(Math.max(0, state.row - (size >> 1)), last + 1 - size);
    state.last = state.first + size;
    await load();
  }

  async function load() {
    await Promise.all(sides.map((each) => each.load(state)));
    if (!left) redraw();
  }

  // The check of the dataset is in work, or begins now; its findings are shown when it is done.
  async function findings() {
    const { state: checked } = await json(`${api}/check`);
    if (left) return;
    if (checked === "running") { setTimeout(findings, 500); return; }
    await Promise.all(sides.map((each) => each.findings()));
    if (!left) timeline();
  }

  let started = 0, from = 0;
  function toggle() {
    state.playing = !state.playing;
    play.textContent = state.playing ? "Pause" : "Play";
    if (state.playing) {
      if (state.row >= last) go(0);
      started = performance.now();
      from = state.row;
      requestAnimationFrame(tick);
    }
  }

  function tick(now) {
    if (!state.playing || left) return;
    const row = Math.min(last, from + Math.max(0, Math.floor(((now - started) / 1000) * info.rate)));
    if (row !== state.row) go(row);
    if (row >= last) toggle(); else requestAnimationFrame(tick);
  }

  function pressed(event) {
    if (event.target.tagName === "INPUT" && event.target.type !== "range") return;
    const act = {
      ArrowRight: () => go(state.row + (event.shiftKey ? 10 : 1)), ArrowLeft: () => go(state.row - (event.shiftKey ? 10 : 1)),
      Home: () => go(0), End: () => go(last), " ": toggle, n: () => move(1), p: () => move(-1), "+": () => zoom(0.5), "-": () => zoom(2),
      ...panel.keys,
    }[event.key];
    if (act && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); act(); }
  }

  const listeners = { keydown: pressed, resize: redraw, focus: panel.refresh };
  for (const [event, listener] of Object.entries(listeners)) addEventListener(event, listener);
  const theme = matchMedia("(prefers-color-scheme: dark)");
  theme.addEventListener("change", redraw);
  go(state.row);
  load();
  if (!info.checked) findings();
  return () => {
    left = true;
    state.playing = false;
    clearTimeout(resting);
    theme.removeEventListener("change", redraw);
    for (const [event, listener] of Object.entries(listeners)) removeEventListener(event, listener);
    for (const each of sides) each.leave();
  };
}
