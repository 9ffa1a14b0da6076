// What may stand in a text field, as a list below it: chosen by arrow keys and Enter, or by the mouse.

import { element } from "./net.js";

let numbers = 0;

// `offers(text before the cursor)` returns `[{text, about, from, act}]`: the text replaces what is between `from` and the
// cursor, or `act()` is called. Returns the list, to be put behind the field, and whether it takes a key.
export function completed(input, offers, options = {}) {
  const list = element("ul", { class: "offers", role: "listbox", id: `offers${++numbers}`, "aria-label": options.label || "completions" });
  const attributes = { role: "combobox", "aria-autocomplete": "list", "aria-controls": list.id, "aria-expanded": "false", autocomplete: "off", spellcheck: "false" };
  for (const [name, value] of Object.entries(attributes)) input.setAttribute(name, value);
  list.hidden = true;
  let found = [], chosen = -1;

  function show() {
    found = offers(input.value.slice(0, input.selectionStart ?? input.value.length));
    chosen = options.first && found.length ? 0 : -1;
    draw();
  }

  function draw() {
    list.hidden = !found.length;
    input.setAttribute("aria-expanded", String(found.length > 0));
    list.replaceChildren(...found.map((each, i) =>
      element("li", { role: "option", id: `${list.id}-${i}`, "aria-selected": String(i === chosen), onpointerdown: (event) => { event.preventDefault(); take(i); } },
        element("span", { class: "offer" }, each.text.trim()), element("span", { class: "dim" }, each.about))));
    if (chosen >= 0) input.setAttribute("aria-activedescendant", `${list.id}-${chosen}`);
    else input.removeAttribute("aria-activedescendant");
    list.children[chosen]?.scrollIntoView({ block: "nearest" });
  }

  function hide() {
    found = [];
    chosen = -1;
    draw();
  }

  function take(i) {
    const { text, from, act } = found[i];
    hide();
    if (act) { act(); return; }
    const rest = input.value.slice(input.selectionStart);
    input.value = input.value.slice(0, from) + text + rest;
    input.setSelectionRange(from + text.length, from + text.length);
    input.focus();
    show();
  }

  input.addEventListener("input", show);
  input.addEventListener("focus", show);
  input.addEventListener("blur", hide);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) { chosen = (chosen + step + found.length) % found.length; draw(); }
    else if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0) take(chosen);
    else if (event.key === "Escape" && found.length && !options.first) hide();
    else return;
    event.preventDefault();
    event.stopImmediatePropagation();
  });
  return { list, show, hide };
}

// Completions of a condition, the language of `filter` in Python: columns, then comparisons, then what joins two conditions.
export function conditionOffers(before, known, texts) {
  const word = before.match(/[\p{L}_][\p{L}\p{N}_]*$/u)?.[0] || "";
  const from = before.length - word.length;
  const head = before.slice(0, from).trimEnd();
  const previous = head.split(/[\s(]+/).pop();
  const starting = (listed) => listed.filter(([text]) => text.toLowerCase().includes(word.toLowerCase()) && text.trim() !== word)
    .map(([text, about]) => ({ text, about, from }));
  if (head === "" || /(^|[\s(])(and|or|not)$|\($/.test(head)) {
    const columns = known.filter((column) => column.condition).map((column) => [`${column.condition} `, column.about]);
    return starting([...columns, ["not ", "the opposite"]]);
  }
  const column = known.find(({ condition }) => condition === previous);
  if (column?.text) return starting([["== ", "is this text"], ["!= ", "is another text"]]);
  if (column && !column.condition.includes(" ")) return starting([">= ", "<= ", "== ", "> ", "< ", "!= "].map((operator) => [operator, ""]));
  const compared = head.match(/([\p{L}_][\p{L}\p{N}_]*)\s*[=!]=$/u)?.[1];
  if (compared) return starting((texts[compared] || []).map(([text]) => [`'${text}' `, ""]));
  return /[\w')]$/.test(head) && before.endsWith(" ") || word ? starting([["and ", "both"], ["or ", "one of both"]]) : [];
}
