// The row of controls below the page, and the sheet of keys.

import { element } from "./net.js";
import { drawTimeline } from "./curves.js";
import { SPEEDS } from "./clock.js";

// `acts` are {toggle, step(n), episode(n), speed(value), loop(), seek(x)}. `limits` are the first and the last place, `episode` and `episodes` where the page is.
export function playerRow(limits, rate, episode, episodes, acts, sheet) {
  const button = (label, text, act, attributes = {}) => element("button", { "aria-label": label, title: label, onclick: act, ...attributes }, text);
  const play = button("play", "▶", acts.toggle, { id: "play" });
  const slider = element("input", { type: "range", min: String(limits[0]), max: String(limits[1]), "aria-label": "step", oninput: () => acts.seek(Number(slider.value)) });
  const line = element("canvas", { class: "timeline", role: "img", "aria-label": "findings and spans of the episode" });
  const said = element("output", { id: "row" });
  const speed = element("select", { id: "speed", "aria-label": "speed", title: "speed (< and >)", onchange: () => acts.speed(Number(speed.value)) },
    ...SPEEDS.map((each) => element("option", { value: String(each) }, `${each}×`)));
  const loop = button("loop over the steps that are shown", "⟳", acts.loop, { id: "loop", "aria-pressed": "false" });
  const body = element("div", { class: "player", role: "group", "aria-label": "player" },
    button("previous episode", "«", () => acts.episode(-1), { class: "wide", disabled: episode < 1 }), button("previous step", "‹", () => acts.step(-1)), play,
    button("next step", "›", () => acts.step(1)), button("next episode", "»", () => acts.episode(1), { class: "wide", disabled: episode >= episodes - 1 }),
    element("div", { class: "track" }, slider, line), said,
    element("span", { class: "wide" }, speed), loop, button("keys and settings", "?", () => sheet.open(), { id: "sheet-button" }));
  return {
    body,
    show(x, text, more, spans, findings) {
      slider.value = String(x);
      slider.setAttribute("aria-valuetext", text + more);
      said.replaceChildren(text, element("span", { class: "wide" }, more));
      drawTimeline(line, limits, rate, x, spans, findings);
    },
    state(clock) {
      play.textContent = clock.playing ? "❚❚" : "▶";
      play.setAttribute("aria-label", clock.playing ? "pause" : "play");
      speed.value = String(clock.speed);
      loop.setAttribute("aria-pressed", String(clock.loop));
    },
  };
}

const KEYS = [
  ["← →", "one step; with Shift ten"], ["Home End", "first and last step"], ["space", "play or pause"], ["< >", "slower, faster"], ["l", "loop over the steps that are shown"],
  ["+ -", "zoom in and out around the step"], ["0", "all steps"], ["a b", "set mark A or B here, or remove it; the curves say the difference"],
  ["n p", "next and previous episode"], ["x", "exclude the episode, or not"], ["1 … 5", "rate it"], ["t", "add a tag"], ["s", "begin a span, then end it"], ["X", "begin a span to exclude, then end it"], ["?", "this sheet"],
];

export function keySheet(settings) {
  const dialog = element("dialog", { id: "sheet", "aria-labelledby": "sheet-title", onclick: (event) => { if (event.target === dialog) dialog.close(); } },
    element("form", { method: "dialog" },
      element("h2", { id: "sheet-title" }, "Keys"),
      element("table", { class: "keys" }, ...KEYS.map(([keys, text]) => element("tr", {}, element("th", { scope: "row" }, ...keys.split(" ").flatMap((key) => [element("kbd", {}, key), " "])), element("td", {}, text)))),
      element("p", { class: "dim" }, "On a curve: a click goes to that step, a drag, two fingers or the wheel with Ctrl zoom all curves, a double click shows all steps."),
      ...settings, element("button", { class: "close" }, "Close")));
  return { body: dialog, open: () => (dialog.open ? dialog.close() : dialog.showModal()), isOpen: () => dialog.open };
}
