// What a loader will serve: batches as lines of samples, layout, shares and mixing. Drawings come from the server, which
// makes the same ones for notebooks; the page adds what is under the mouse, and the way from a sample to its episode.

import { json, send, element, drawing, remember } from "./net.js";

const KINDS = { batches: "Batches: a line is a batch, a cell is a sample", layout: "Layout: a line is a sample, a bar is a sequence, gray is padding" };

export async function planPage(page, options) {
  const state = { position: options.get("position"), by: options.get("by") || "", cursor: null, episode: options.get("episode"), source: options.get("source") };
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

  const keep = () => remember("#plan", { position: state.position, by: state.by, episode: state.episode, source: state.source });
  const covered = coverage(() => width);
  let used; // made when the sources are known

  function draw() {
    keep();
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
        element("a", { href: link(i) }, "Open the episode"), ", ",
        element("button", { class: "link", onclick: () => used.ask(episode[i], source[i]) }, "all uses of it"), " or ",
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
      element("h2", {}, "Coverage: what an epoch has of the data"), covered,
      element("h2", {}, "Uses of an episode"), (used ||= uses(shown.sources.map((name, i) => (shown.parts.length === shown.sources.length ? shown.parts[i] : name)), state, keep)),
      element("h2", {}, "Rows of a batch"), batch(),
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

// Which rows of the data are in a sample, counted when asked: that plans an epoch.
function coverage(width) {
  const result = element("div", { id: "coverage", "aria-live": "polite" });
  const button = element("button", { id: "count", onclick: async () => {
    button.disabled = true;
    result.replaceChildren(element("p", { class: "dim" }, "counting..."));
    try {
      const found = await json("loader/coverage", { width: width() });
      result.replaceChildren(element("p", {}, found.sentence), rowsOf(["reason", `${found.unit}s`, "share"], found.lines.map(([reason, rows, share]) => [reason, rows.toLocaleString("en"), percent(share)])),
        element("div", { class: "panel" }, drawing(found.drawing)));
    } catch (error) {
      result.replaceChildren(element("p", { class: "error", role: "alert" }, error.message));
    }
    button.disabled = false;
  } }, "Count the rows");
  return element("div", {}, element("div", { class: "bar" }, button, element("span", { class: "dim" }, "plans an epoch, reads no data")), result);
}

// The batches that had an episode, and those that will. `ask(episode, source)` shows another one.
function uses(sources, state, keep) {
  const result = element("div", { id: "uses", "aria-live": "polite" });
  const source = element("select", { "aria-label": "source" }, ...sources.map((name, i) => element("option", { value: i }, name)));
  const episode = element("input", { type: "number", min: "0", value: state.episode ?? "", "aria-label": "episode", placeholder: "episode" });
  source.value = state.source ?? "0";
  const body = element("div", {}, element("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); show(); } },
    ...(sources.length > 1 ? [source] : []), episode, element("button", {}, "List its batches")), result);

  async function show() {
    Object.assign(state, { episode: episode.value, source: source.value });
    keep();
    try {
      const found = await json("loader/uses", { episode: episode.value, source: source.value });
      const heads = ["position", "epoch", "batch", "row", "rank", "given", "ticket"];
      result.replaceChildren(element("p", {}, found.sentence), rowsOf(heads, found.lines.map(([position, epoch, at, row, rank, given, ticket]) =>
        [position.toLocaleString("en"), String(epoch), at < 0 ? "none" : at.toLocaleString("en"), row.toLocaleString("en"), String(rank), given ? "yes" : "to come", ticket ? element("a", { href: `#ticket/${ticket}` }, ticket) : ""])),
        ...(found.more ? [element("p", { class: "dim" }, `and ${found.more.toLocaleString("en")} more`)] : []));
    } catch (error) {
      result.replaceChildren(element("p", { class: "error", role: "alert" }, error.message));
    }
  }

  body.ask = (number, of) => { episode.value = number; source.value = of; show(); body.scrollIntoView({ block: "nearest" }); };
  if (state.episode) show();
  return body;
}

// The way from a ticket, which a batch and an error message have, to its rows.
function batch() {
  const ticket = element("input", { "aria-label": "ticket", placeholder: "ticket of a batch", spellcheck: "false", class: "where" });
  return element("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); if (ticket.value.trim()) location.hash = `#ticket/${encodeURIComponent(ticket.value.trim())}`; } },
    ticket, element("button", {}, "Show its rows"));
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
  return rowsOf(["measure", "this order", "by chance"], [
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
