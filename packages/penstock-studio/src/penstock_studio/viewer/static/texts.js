// A column of text: what it says at the row, and all that it says in the episode, each at its step.

import { json, element, address } from "./net.js";

export function textPanel(api, number, column, page) {
  const now = element("blockquote", { "aria-live": "off" });
  const list = element("ol", { class: "said", "aria-label": column });
  const more = element("details", {}, element("summary", {}, "all texts"), list);
  const figure = element("figure", { class: "text" }, element("figcaption", {}, column), now, more);
  let texts = [], shown = -1, wanted = 0, left = false;

  json(address(`${api}/text/${number}`, { column })).then((found) => {
    if (left) return;
    texts = found.texts.map(([row, text]) => [row, conversation(text)]);
    list.replaceChildren(...texts.map(([row, text]) =>
      element("li", {}, element("button", { class: "plain", onclick: () => page.pick(row) }, element("span", { class: "dim" }, String(row)), ` ${text || "(empty)"}`))),
      ...(found.more ? [element("li", { class: "dim" }, "and more")] : []));
    more.hidden = texts.length < 2;
    show(wanted);
  }, (error) => { now.textContent = error.message; });

  function show(row) {
    wanted = row;
    let low = 0, high = texts.length; // the last text that begins at or before the row
    while (low < high) { const middle = (low + high) >> 1; if (texts[middle][0] <= row) low = middle + 1; else high = middle; }
    if (low - 1 === shown || !texts.length) return;
    list.children[shown]?.removeAttribute("aria-current");
    shown = low - 1;
    now.textContent = texts[shown]?.[1] ?? "";
    now.hidden = !now.textContent;
    list.children[shown]?.setAttribute("aria-current", "true");
    if (more.open && shown >= 0) list.scrollTop = list.children[shown].offsetTop - list.offsetTop - list.clientHeight / 2;
  }

  return { figure, show, leave() { left = true; } };
}

// Messages of a conversation, which are stored as JSON, one a line.
function conversation(text) {
  if (!text.startsWith("[{")) return text;
  try {
    const messages = JSON.parse(text);
    return messages.every((each) => typeof each.role === "string") ? messages.map((each) => `${each.role}: ${each.content ?? JSON.stringify(each.tool_calls ?? "")}`).join("\n") : text;
  } catch {
    return text;
  }
}
