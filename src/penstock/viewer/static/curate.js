// Marks of an episode: excluded, rating, tags and spans, by keys or buttons. Each change is saved at once.

import { json, send, element } from "./net.js";

// `row()` is the row that is looked at, `pick(row)` goes to one. Returns the body, the keys, and `refresh`.
export function curatePanel(api, number, info, row, pick) {
  const marks = { tags: [], spans: [], ...info.marks };
  const chips = element("div", { class: "bar", id: "marks" });
  const problem = element("span", { class: "error", role: "alert" });
  const word = element("input", { id: "word", hidden: true, maxlength: "64", autocomplete: "off", spellcheck: "false", onkeydown: entered });
  let start = null; // first row of a span that is open
  let asked = null; // what to do with the word
  let saving = Promise.resolve();

  function save(change) {
    if (!info.curation.path) {
      problem.textContent = info.curation.message;
      return;
    }
    const before = structuredClone(marks);
    change();
    show();
    const sent = structuredClone(marks);
    saving = saving.then(() => send(`${api}/marks/${number}`, sent)).then(
      () => { problem.textContent = ""; },
      (error) => { problem.textContent = error.message; Object.assign(marks, { rating: undefined, excluded: undefined }, before); show(); });
  }

  function ask(label, act) {
    if (!info.curation.path) {
      problem.textContent = info.curation.message;
      return;
    }
    asked = act;
    word.value = "";
    word.placeholder = label;
    word.setAttribute("aria-label", label);
    word.hidden = false;
    word.focus();
  }

  function entered(event) {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    const text = word.value.trim();
    word.hidden = true;
    word.blur();
    if (event.key === "Escape") start = null;
    show();
    if (event.key === "Enter" && text) asked(text);
  }

  const exclude = () => save(() => { marks.excluded = !marks.excluded; });
  const rate = (rating) => save(() => { marks.rating = marks.rating === rating ? undefined : rating; });
  const tag = () => ask("tag", (text) => save(() => { marks.tags = [...new Set([...marks.tags, text])].sort(); }));
  const span = () => {
    if (start === null) {
      start = row();
      show();
      return;
    }
    const ends = [Math.min(start, row()), Math.max(start, row())];
    ask(`tag of steps ${ends[0]} to ${ends[1]}`, (text) => {
      start = null;
      save(() => { marks.spans = [...marks.spans, [...ends, text]]; });
    });
  };

  function show() {
    const remove = (name, value) => save(() => { marks[name] = marks[name].filter((each) => each !== value); });
    chips.replaceChildren(
      element("button", { "aria-pressed": String(!!marks.excluded), class: marks.excluded ? "chip error" : "chip", onclick: exclude }, marks.excluded ? "excluded" : "exclude"),
      element("span", { class: "rating", role: "group", "aria-label": "rating" }, ...[1, 2, 3, 4, 5].map((rating) =>
        element("button", { "aria-label": `rate ${rating}`, "aria-pressed": String(marks.rating === rating), onclick: () => rate(rating) }, rating <= (marks.rating || 0) ? "★" : "☆"))),
      ...marks.tags.map((each) => element("button", { class: "chip tag", title: "remove", onclick: () => remove("tags", each) }, `${each} ×`)),
      ...marks.spans.flatMap((each) => [
        element("button", { class: "chip note", onclick: () => pick(each[0]) }, `${each[2]} ${each[0]}-${each[1]}`),
        element("button", { class: "chip", "aria-label": `remove ${each[2]}`, onclick: () => remove("spans", each) }, "×")]),
      element("button", { onclick: tag }, "tag"),
      element("button", { id: "span", onclick: span }, start === null ? "span" : `span from ${start}: end here`),
      word, problem,
      element("span", { class: "dim" }, element("kbd", {}, "x"), " exclude, ", element("kbd", {}, "1"), "-", element("kbd", {}, "5"), " rate, ",
        element("kbd", {}, "t"), " tag, ", element("kbd", {}, "s"), " span"),
      ...(info.curation.path ? [] : [element("span", { class: "dim" }, info.curation.message)]));
  }

  // Marks that others set are read when the window is looked at again.
  async function refresh() {
    await saving;
    const { marks: now } = await json(`${api}/episode/${number}`);
    if (word.hidden && start === null) { Object.assign(marks, { tags: [], spans: [], rating: undefined, excluded: undefined, note: undefined }, now); show(); }
  }

  show();
  const keys = { x: exclude, t: tag, s: span };
  for (const rating of [1, 2, 3, 4, 5]) keys[rating] = () => rate(rating);
  return { body: chips, keys, refresh };
}
