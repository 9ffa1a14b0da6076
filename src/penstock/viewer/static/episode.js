// An episode, or two side by side: pictures of all cameras and curves, at one row.
//
// The row is the only state of the page. Keys, the slider, the mouse on a curve and the clock set it; pictures and
// cursors follow. A picture is asked for when the one before it has arrived, so a slow network skips pictures.

import { json, series, element, address } from "./net.js";
import { drawCurves } from "./curves.js";
import { curatePanel } from "./curate.js";

export async function episodePage(page, name, number, options) {
  const api = `api/${encodeURIComponent(name)}`;
  const other = options.get("with");
  const sides = [await side(api, number)];
  if (other !== null) sides.push(await side(api, Number(other)));
  const last = Math.max(...sides.map((each) => each.info.steps - 1), 0);
  const state = { row: Math.min(Math.max(Number(options.get("row") || 0), 0), last), playing: false, first: 0, last: last + 1 };
  const slider = element("input", { type: "range", min: "0", max: String(last), "aria-label": "row", oninput: () => go(Number(slider.value)) });
  const place = element("span", { id: "row", class: "dim" });
  const play = element("button", { id: "play", onclick: () => toggle() }, "Play");
  const beside = element("input", { type: "number", min: "0", placeholder: "episode", "aria-label": "episode to compare", value: other ?? "",
    onchange: () => { location.hash = address(`#/${encodeURIComponent(name)}/${number}`, { row: state.row, with: beside.value }); } });
  const panel = curatePanel(api, number, sides[0].info, () => state.row, (row) => go(row));
  page.replaceChildren(
    element("div", { class: `sides ${sides.length > 1 ? "two" : ""}` }, ...sides.map((each) => each.body)),
    element("div", { class: "player" }, panel.body, slider,
      element("div", { class: "bar" }, play, place,
        element("button", { onclick: () => move(-1) }, "Previous episode"), element("button", { onclick: () => move(1) }, "Next episode"),
        element("label", {}, "compare with ", beside),
        element("span", { class: "dim" }, element("kbd", {}, "←"), " ", element("kbd", {}, "→"), " step, ", element("kbd", {}, "space"), " play, ",
          element("kbd", {}, "+"), " ", element("kbd", {}, "-"), " zoom, ", element("kbd", {}, "n"), " ", element("kbd", {}, "p"), " episode"))));

  let left = false;
  function move(step) {
    if (number + step >= 0) location.hash = `#/${encodeURIComponent(name)}/${number + step}`;
  }

  function go(row) {
    state.row = Math.min(Math.max(row, 0), last);
    slider.value = String(state.row);
    const rate = sides[0].info.rate;
    place.textContent = `step ${state.row} of ${last} (${(state.row / rate).toFixed(2)} s at ${rate.toPrecision(3)}/s)`;
    for (const each of sides) each.show(state.row, state);
    history.replaceState(null, "", address(`#/${encodeURIComponent(name)}/${number}`, { row: state.row, with: other }));
  }

  async function zoom(factor) {
    const size = Math.min(last + 1, Math.max(10, Math.round((state.last - state.first) * factor)));
    state.first = Math.min(Math.max(0, state.row - (size >> 1)), last + 1 - size);
    state.last = state.first + size;
    await Promise.all(sides.map((each) => each.load(state)));
    go(state.row);
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
    const row = from + Math.floor(((now - started) / 1000) * sides[0].info.rate);
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

  for (const each of sides) each.pick = (row) => go(row);
  const resized = () => go(state.row);
  addEventListener("keydown", pressed);
  addEventListener("resize", resized);
  addEventListener("focus", panel.refresh);
  go(state.row);
  Promise.all(sides.map((each) => each.load(state))).then(() => { if (!left) go(state.row); });
  return () => { left = true; state.playing = false; removeEventListener("keydown", pressed); removeEventListener("resize", resized); removeEventListener("focus", panel.refresh); };
}

async function side(api, number) {
  const info = await json(`${api}/episode/${number}`);
  const made = { info, pick: () => {} };
  const cameras = info.cameras.map((camera) => {
    const image = element("img", { alt: camera });
    let busy = false, wanted = null;
    const ask = (row) => {
      if (busy) { wanted = row; return; }
      busy = true;
      image.src = address(`${api}/picture/${number}/${row}`, { camera });
    };
    const arrived = () => {
      busy = false;
      image.dataset.row = image.src.split("/").pop().split("?")[0]; // the row that is shown
      image.classList.toggle("small", image.naturalWidth < 160);
      if (wanted !== null) { const row = wanted; wanted = null; ask(row); }
    };
    image.addEventListener("load", arrived);
    image.addEventListener("error", arrived);
    return { figure: element("figure", {}, image, element("figcaption", {}, camera)), ask };
  });
  const curves = info.curves.map((column) => {
    const canvas = element("canvas", { role: "img", "aria-label": `curve of ${column}` });
    const box = element("div", { class: "curve" }, element("div", { class: "dim" }, column), canvas);
    const curve = { column, canvas, box, data: { values: new Float32Array(0), n: 0, k: 0 }, view: { first: 0, last: info.steps } };
    const point = (event) => {
      const { left, width } = canvas.getBoundingClientRect();
      made.pick(Math.round(curve.view.first + ((event.clientX - left) / width) * (curve.view.last - curve.view.first - 1)));
    };
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); point(event); });
    canvas.addEventListener("pointermove", (event) => { if (event.buttons) point(event); });
    return curve;
  });
  const facts = Object.entries({ ...info.texts, ...info.metadata }).filter(([, value]) => value !== "");
  made.body = element("section", {},
    element("h1", {}, `Episode ${number}`),
    element("ul", { class: "counts" }, element("li", {}, element("b", {}, String(info.steps)), " steps"),
      ...facts.slice(0, 12).map(([key, value]) => element("li", {}, `${key} `, element("b", {}, value)))),
    element("div", { class: "bar" }, ...info.findings.map((finding) =>
      element("button", { class: `chip ${finding.level}`, title: finding.message, onclick: () => made.pick(finding.row) }, `${finding.name} at ${finding.row}`))),
    element("div", { class: "cameras" }, ...cameras.map((camera) => camera.figure)),
    ...curves.map((curve) => curve.box));
  made.load = async (state) => {
    await Promise.all(curves.map(async (curve) => {
      curve.view = { first: state.first, last: Math.min(state.last, Math.max(info.steps, 1)) };
      curve.data = await series(`${api}/series/${number}`, { column: curve.column, first: curve.view.first, last: curve.view.last, points: 1500 });
    }));
  };
  made.show = (row) => {
    const mine = Math.min(row, Math.max(info.steps - 1, 0));
    if (info.steps) for (const camera of cameras) camera.ask(mine);
    for (const curve of curves) drawCurves(curve.canvas, curve.data, curve.view, mine);
  };
  return made;
}
