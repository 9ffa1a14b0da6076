// What a loader will serve: batches as lines of samples, layout, shares and mixing. Drawings come from the server, which
// makes the same ones for notebooks; the page adds what is under the mouse, and the way from a sample to its episode.

import { json, send, element, drawing, remember } from "./net.js";

const KINDS = { batches: "Batches: a line is a batch, a cell is a sample", layout: "Layout: a line is a sample, a bar is a sequence, gray is padding" };

export async function planPage(page, options) {
  const state = { position: options.get("position"), by: options.get("by") || "", cursor: null };
  const body = element("div", {});
  let left = false, width = 0, shown = null, asked = 0;

  async function load() {
    width = Math.max(page.clientWidth - 36, 240);
    const mine = ++asked;
    const found = await json("loader/plan", { position: state.position, width });
    if (left || mine !== asked) return;
    shown = found;
    state.by ||= shown.parts.length > 1 ? "part" : "episode";
    draw();
  }

  function draw() {
    remember("#plan", { position: state.position, by: state.by });
    const line = element("p", { class: "dim", id: "sample", "aria-live": "polite" }, "Point at a sample. Keys: ← → ↑ ↓ choose one, Enter opens it, n p next and earlier batches.");
    const grid = drawing(shown.drawings[`batches_${state.by}`]);
    grid.setAttribute("tabindex", "0");
    grid.classList.add("cells");
    grid.addEventListener("pointermove", (event) => choose(under(event)));
    grid.addEventListener("click", (event) => { choose(under(event)); follow(); });
    const cells = new Map(shown.rows.batch.map((batch, i) => [`${batch} ${shown.rows.column[i]}`, i]).reverse());

    function under(event) {
      const box = grid.getBoundingClientRect();
      return [Math.floor(((event.clientY - box.top) / box.height) * shown.grid[0]), Math.floor(((event.clientX - box.left) / box.width) * shown.grid[1])];
    }

    function choose([batch, column]) {
      state.cursor = [Math.min(Math.max(batch, 0), shown.grid[0] - 1), Math.min(Math.max(column, 0), shown.grid[1] - 1)];
      const i = cells.get(state.cursor.join(" "));
      mark();
      if (i === undefined) { line.textContent = "no sample here"; return; }
      const { source, episode, step, rows, part } = shown.rows;
      const position = shown.batches[batch].first;
      line.replaceChildren(
        element("b", {}, `batch ${batch}, sample ${column}`), `: episode ${episode[i]} of ${shown.parts[part[i]]}, `,
        rows[i] > 1 ? `steps ${step[i]} to ${step[i] + rows[i] - 1}` : `step ${step[i]}`, ". ",
        element("a", { href: link(i) }, "Open the episode"), " or ",
        element("a", { href: `#ticket/${shown.batches[batch].ticket}` }, `the batch at position ${position.toLocaleString()}`), ".");
    }

    function mark() {
      grid.querySelector("rect.chosen")?.remove();
      const [w, h] = grid.getAttribute("viewBox").split(" ").slice(2).map(Number);
      const rect = document.createElementNS(grid.namespaceURI, "rect");
      const [batch, column] = state.cursor;
      const values = { class: "chosen", x: (column / shown.grid[1]) * w, y: (batch / shown.grid[0]) * h, width: w / shown.grid[1], height: h / shown.grid[0], fill: "none", stroke: "currentColor", "stroke-width": 2 };
      for (const [name, value] of Object.entries(values)) rect.setAttribute(name, value);
      grid.append(rect);
    }

    function follow() {
      const i = cells.get(state.cursor.join(" "));
      if (i !== undefined) location.hash = link(i);
    }

    state.keys = (event) => {
      const [batch, column] = state.cursor || [0, -1];
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (step) choose(state.cursor ? [batch + step[0], column + step[1]] : [0, 0]);
      else if (event.key === "Enter" && state.cursor && document.activeElement?.tagName !== "BUTTON" && document.activeElement?.tagName !== "A") follow();
      else if (event.key === "n" && (shown.end === null || shown.next < shown.end)) move(shown.next);
      else if (event.key === "p") earlier();
      else return false;
      return true;
    };

    const colors = element("div", { class: "bar", role: "group", "aria-label": "colours" }, "colour by ",
      ...["part", "episode"].map((by) => element("button", { "aria-pressed": String(state.by === by), onclick: () => { state.by = by; draw(); } }, by === "part" && !shown.shares.length ? "source" : by)),
      ...(state.by === "part" ? shown.parts.map((name, i) => element("span", {}, swatch(i), ` ${name}`)) : []));
    body.replaceChildren(
      element("h1", {}, "Plan"),
      element("div", { class: "dim location" }, shown.place),
      element("p", { class: "chain" }, shown.chain.join(" → ")),
      element("ul", { class: "plain", id: "says" }, ...shown.sentences.map((sentence) => element("li", {}, sentence))),
      colors,
      element("h2", {}, KINDS.batches), element("div", { class: "panel" }, grid), line,
      element("div", { class: "bar" },
        element("button", { id: "earlier", onclick: earlier, disabled: !shown.batches[0].first }, "Earlier batches"),
        element("button", { id: "later", onclick: () => move(shown.next), disabled: shown.end !== null && shown.next >= shown.end }, "Next batches")),
      ...(shown.width > 1 ? [element("h2", {}, KINDS.layout), element("div", { class: "panel" }, drawing(shown.drawings[`layout_${state.by}`]))] : []),
      ...(shown.shares.length ? [element("h2", {}, "Shares of the mix over the epoch"), element("div", { class: "panel" }, drawing(shown.drawings.shares)), shareTable(shown.shares)] : []),
      ...(shown.drawings.mixing ? [element("h2", {}, "Mixing: pairs from one episode, by their distance in the order"), element("div", { class: "panel" }, drawing(shown.drawings.mixing))] : []),
      ...(shown.mixing?.chance ? [mixingTable(shown.mixing)] : []),
      element("h2", {}, "Speed"), speed());
  }

  const link = (i) => {
    const { source, episode, step } = shown.rows;
    return `#/${encodeURIComponent(shown.pages[source[i]])}/${episode[i]}?row=${step[i]}`;
  };

  function move(position) {
    state.position = String(Math.max(position, 0));
    state.cursor = null;
    load().catch(failed);
  }

  const earlier = () => move(shown.batches[0].first - (shown.next - shown.batches[0].first));

  function failed(error) {
    body.replaceChildren(element("p", { class: "message", role: "alert" }, error.message));
  }

  function pressed(event) {
    if (event.target.tagName === "INPUT" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (state.keys && state.keys(event)) event.preventDefault();
  }

  let waiting;
  const resized = () => { clearTimeout(waiting); waiting = setTimeout(() => { if (Math.abs(page.clientWidth - 36 - width) > 8) load().catch(failed); }, 150); };
  page.replaceChildren(body);
  await load();
  addEventListener("keydown", pressed);
  addEventListener("resize", resized);
  return () => { left = true; removeEventListener("keydown", pressed); removeEventListener("resize", resized); };
}

// The colour of a part, as the server has it: drawn as a picture, since pages allow no styles in elements.
function swatch(i) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const rect = document.createElementNS(svg.namespaceURI, "rect");
  for (const [name, value] of Object.entries({ width: 11, height: 11, viewBox: "0 0 11 11" })) svg.setAttribute(name, value);
  for (const [name, value] of Object.entries({ width: 11, height: 11, rx: 2, class: `color${i % 12}` })) rect.setAttribute(name, value);
  svg.append(rect);
  return svg;
}

const percent = (value) => `${Number((100 * value).toPrecision(3))} %`;

function rowsOf(heads, rows) {
  return element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, ...heads.map((head, i) => element("th", { class: i ? "number" : "" }, head)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell, i) => element("td", { class: i ? "number" : "wide" }, cell)))))));
}

function shareTable(shares) {
  return rowsOf(["part", "target", "samples", "steps"], shares.map(([name, ...values]) => [name, ...values.map(percent)]));
}

function mixingTable(mixing) {
  const { neighbours, chance, batch, episodes, expected } = mixing;
  return rowsOf(["", "this order", "by chance"], [
    ["neighbours from one episode", percent(neighbours), percent(chance)],
    [`episodes in a batch of ${batch.toLocaleString()} sequences`, episodes.toFixed(1), expected.toFixed(1)]]);
}

// Measures the loader on this machine when asked: that loads some batches.
function speed() {
  const result = element("div", { id: "speed", "aria-live": "polite" });
  const button = element("button", { id: "measure", onclick: async () => {
    button.disabled = true;
    result.replaceChildren(element("p", { class: "dim" }, "measuring..."));
    try {
      const { stages, sentence, delivered } = await send("loader/measure", {});
      result.replaceChildren(element("p", {}, sentence), rowsOf(["stage", "samples a second", "GB a second", "of the time"],
        stages.map(([name, rate, speed, share]) => [name, Math.round(rate).toLocaleString(), speed ? (speed / 1e9).toFixed(2) : "", percent(share)])),
        element("p", { class: "dim" }, delivered ? `all threads: ${Math.round(delivered).toLocaleString()} samples a second` : ""));
    } catch (error) {
      result.replaceChildren(element("p", { class: "error", role: "alert" }, error.message));
    }
    button.disabled = false;
  } }, "Measure the loader here");
  return element("div", {}, element("div", { class: "bar" }, button, element("span", { class: "dim" }, "loads some batches, and does not move the loader")), result);
}
