// Stages of a running loader: rates, queues, waiting and memory over time, what limits it, and what would mend it.

import { json, element, drawing } from "./net.js";

const EVERY = 1000; // milliseconds

export async function livePage(page) {
  let left = false, paused = false, waiting, asked = 0;
  const pause = element("button", { id: "pause", "aria-pressed": "false", onclick: () => toggle() }, "Pause");
  const name = element("span", { class: "dim location" });
  const body = element("div", { id: "live" });
  page.replaceChildren(element("h1", {}, "Live"), element("div", { class: "bar" }, pause, element("span", { class: "dim" }, element("kbd", {}, "space"), " pause"), name), body);

  function toggle() {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    pause.setAttribute("aria-pressed", String(paused));
    if (paused) clearTimeout(waiting);
    else refresh();
  }

  async function refresh() {
    clearTimeout(waiting);
    const mine = ++asked;
    try {
      const found = await json("live/figures", { width: Math.max(chartWidth(page), 240) });
      if (left || paused || mine !== asked) return;
      name.textContent = found.name;
      draw(found);
    } catch (error) {
      if (left || paused || mine !== asked) return;
      body.replaceChildren(element("p", { class: "message", role: "alert" }, error.message));
    }
    waiting = setTimeout(refresh, EVERY);
  }

  function draw(found) {
    const problem = found.problem && element("p", { class: "message", role: "alert" }, found.problem);
    if (!found.stages.length) {
      body.replaceChildren(problem || element("p", { class: "message" }, "the first rates appear at the second look"));
      return;
    }
    const counts = Object.entries(found.account);
    body.replaceChildren(...(problem ? [problem] : []),
      element("div", { class: "panel limit", "aria-live": "polite" },
        element("p", { id: "limit" }, found.bottleneck || "no stages yet"),
        found.advice && element("p", { class: "dim" }, `What would help: ${found.advice}.`)),
      element("ul", { class: "counts" },
        element("li", {}, "judged over ", element("b", {}, `${found.seconds.toFixed(0)} s`)),
        ...(found.memory ? [element("li", {}, "memory ", element("b", {}, `${(found.memory / 1e9).toFixed(2)} GB`))] : []),
        ...counts.filter(([key, n]) => n || key === "expected").map(([key, n]) => element("li", {}, `chunks ${key} `, element("b", {}, n.toLocaleString())))),
      element("h2", {}, "Stages"), stageTable(found),
      element("div", { class: "charts" }, ...found.charts.map(([title, text]) =>
        element("section", {}, element("h2", {}, title), element("div", { class: "panel" }, drawing(text))))));
  }

  function pressed(event) {
    if (event.key !== " " || event.target.tagName === "BUTTON" || event.target.tagName === "INPUT") return;
    event.preventDefault();
    toggle();
  }

  addEventListener("keydown", pressed);
  await refresh();
  return () => { left = true; clearTimeout(waiting); removeEventListener("keydown", pressed); };
}

// Charts stand side by side where there is room for two.
function chartWidth(page) {
  const width = page.clientWidth;
  return (width >= 900 ? (width - 16) / 2 : width) - 36;
}

function stageTable(found) {
  const heads = found.heads.map((head) => element("th", {}, head));
  const rows = found.stages.map((row, i) => element("tr", {}, ...row.map((cell, j) =>
    element("td", { class: j > 2 ? "wide" : "" }, found.heads[j] === "busy" ? meter(found.busy[i], cell) : cell))));
  return element("div", { class: "scroll", id: "stages" }, element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows)));
}

function meter(value, text) {
  return element("span", { class: "meter" }, element("meter", { min: "0", max: "1", value: String(Math.min(value, 1)), "aria-label": "busy" }), ` ${text}`);
}
