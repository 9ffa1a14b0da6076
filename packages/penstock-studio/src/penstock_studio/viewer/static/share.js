// How to give what a page shows to others: a line of Python, a command, a list of episodes, a page as one file.

import { json, element } from "./net.js";

export function copied(text) {
  const button = element("button", { onclick: async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } }, "Copy");
  return element("div", { class: "copied" }, element("pre", { tabindex: "0" }, text), button);
}

// A link that saves a value as a file. The page may load only what the server has, so the text is in the link.
export function saved(name, value, text) {
  return element("a", { class: "button", download: name, href: `data:application/json,${encodeURIComponent(JSON.stringify(value))}` }, text);
}

export function shareMenu(api, info, state) {
  const body = element("div", { class: "choices share" });
  const menu = element("details", { class: "menu", id: "share", ontoggle: async () => {
    if (!menu.open) return;
    const { where, sort, descending, finding } = state();
    try {
      const found = await json(`${api}/selection`, { where, sort, descending, finding });
      body.replaceChildren(
        element("h3", {}, `These ${found.episodes.length.toLocaleString("en")} episodes in Python`), copied(found.python),
        ...(found.command ? [element("h3", {}, "As a dataset of their own"), copied(found.command)] : []),
        element("div", { class: "bar" }, saved(`${info.name}.episodes.json`, found.episodes, "Save their numbers")),
        element("h3", {}, "For others"),
        element("p", { class: "dim" }, "One file that needs no server, and pages that others may read:"), copied(found.export), copied(found.serve));
    } catch (error) {
      body.replaceChildren(element("p", { class: "error", role: "alert" }, error.message));
    }
  } }, element("summary", { class: "button" }, "Share"), body);
  return menu;
}
