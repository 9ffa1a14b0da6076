// Marks of an episode: excluded, rating, tags, spans and excluded spans, by keys or buttons. Each change is saved at once.

import { json, element, address } from "./net.js";
import { saveMarks } from "./unsent.js";

// `row()` is the row that is looked at, `pick(row)` goes to one, `changed()` is called when spans are others. Returns the
// body, the keys, `refresh`, and `spans()` for curves: `tagged` and `excluded`.
export function curatePanel(api, number, info, row, pick, changed) {
  const none = () => ({ tags: [], spans: [], excluded_spans: [], rating: undefined, excluded: undefined, note: undefined });
  const marks = { ...none(), ...info.marks };
  const chips = element("span", { class: "chips" });
  const problem = element("span", { class: "error", role: "alert" });
  const word = element("input", { id: "word", hidden: true, maxlength: "64", autocomplete: "off", spellcheck: "false", onkeydown: entered });
  let start = null; // first row of a span that is open
  let leaving = null; // first row of an excluded span that is open
  let asked = null; // what to do with the word
  let saving = Promise.resolve();
  let latest = null; // the marks that were sent last
  let stored = { ...marks }; // as the server has them
  let refreshes = 0;

  function save(change) {
    if (!info.curation.path) {
      problem.textContent = info.curation.message;
      return;
    }
    const before = structuredClone(marks);
    change();
    show();
    changed();
    const after = structuredClone(marks);
    latest = after;
    const sent = saveMarks(address(`${api}/marks/${number}`, { file: info.curation.path }), { before, after });
    saving = Promise.allSettled([saving, sent]).then(([, answer]) => {
      if (answer.status === "fulfilled") stored = answer.value;
      problem.textContent = answer.status === "fulfilled" ? "" : answer.reason.message;
      if (latest === after || answer.status !== "fulfilled") take(stored);
    });
  }

  // The server answers with the marks in the file, which may have changes of other people.
  function take(now) {
    Object.assign(marks, none(), now);
    show();
    changed();
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
    if (event.key === "Escape") start = leaving = null;
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

  const excludeSpan = () => {
    if (!info.curation.path) {
      problem.textContent = info.curation.message;
      return;
    }
    if (leaving === null) {
      leaving = row();
      show();
      changed();
      return;
    }
    const ends = [Math.min(leaving, row()), Math.max(leaving, row())];
    leaving = null;
    save(() => { marks.excluded_spans = joined([...marks.excluded_spans, ends]); });
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
      ...marks.excluded_spans.flatMap((each) => [
        element("button", { class: "chip error", onclick: () => pick(each[0]) }, `excluded ${each[0]}-${each[1]}`),
        element("button", { class: "chip", "aria-label": `keep ${each[0]} to ${each[1]}`, onclick: () => remove("excluded_spans", each) }, "×")]),
      element("button", { onclick: tag }, "tag"),
      element("button", { id: "span", onclick: span }, start === null ? "span" : `span from ${start}: end here`),
      element("button", { id: "exclude-span", onclick: excludeSpan }, leaving === null ? "exclude span" : `exclude from ${leaving}: end here`));
  }

  // Only the chips are drawn again, so that a word that is being typed stays.
  const body = element("div", { class: "bar", id: "marks" }, chips, word, problem,
    element("span", { class: "dim keys" }, element("kbd", {}, "x"), " exclude, ", element("kbd", {}, "1"), "-", element("kbd", {}, "5"), " rate, ",
      element("kbd", {}, "t"), " tag, ", element("kbd", {}, "s"), " span, ", element("kbd", {}, "X"), " exclude a span"),
    ...(info.curation.message ? [element("span", { class: "dim" }, info.curation.message)] : []));

  // Marks that others set are read when the window is looked at again.
  async function refresh() {
    const mine = ++refreshes, before = saving;
    await before;
    const { marks: now } = await json(`${api}/episode/${number}`);
    if (mine !== refreshes || saving !== before) return; // older than what is shown
    if (word.hidden && start === null && leaving === null) take(stored = now);
  }

  show();
  const keys = { x: exclude, X: excludeSpan, t: tag, s: span };
  for (const rating of [1, 2, 3, 4, 5]) keys[rating] = () => rate(rating);
  const spans = () => ({
    tagged: marks.spans,
    excluded: leaving === null ? marks.excluded_spans : joined([...marks.excluded_spans, [Math.min(leaving, row()), Math.max(leaving, row())]]),
  });
  return { body, keys, refresh, spans };
}

// Spans in order, those that touch as one: as the file has them.
function joined(spans) {
  const ranges = [];
  for (const [first, last] of [...spans].sort((one, other) => one[0] - other[0])) {
    const before = ranges[ranges.length - 1];
    if (before && first <= before[1] + 1) before[1] = Math.max(before[1], last);
    else ranges.push([first, last]);
  }
  return ranges;
}
