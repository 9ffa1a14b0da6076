// Requests to the server. An answer with an error has a message, which becomes the error of the promise.

export async function json(path, query = {}) {
  const response = await fetch(address(path, query));
  const body = await response.json();
  if (!response.ok) throw new Error(body.error || response.statusText);
  return body;
}

// Send JSON to the server, which checks that a page of its own asks.
export async function send(path, value) {
  const response = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(value) });
  const text = await response.text();
  if (response.ok) return JSON.parse(text);
  throw new Error(text.startsWith("{") ? JSON.parse(text).error : text);
}

// An array of float32 or float64 with its shape, and the bytes behind it: {values, shape, rest}.
export async function arrays(path, query) {
  const response = await fetch(address(path, query));
  if (!response.ok) throw new Error((await response.json()).error);
  const shape = response.headers.get("X-Shape").split(",").map(Number);
  const count = shape.reduce((product, size) => product * size, 1);
  const buffer = await response.arrayBuffer();
  const Values = response.headers.get("X-Type") === "f8" ? Float64Array : Float32Array;
  return { values: new Values(buffer, 0, count), shape, rest: new Uint8Array(buffer, Values.BYTES_PER_ELEMENT * count) };
}

// Rows of a column: {values, flags, n, k}. Value (i, side, j) is at (i * 2 + side) * k + j; side 0 is the smallest. Bit 0 of
// a flag is a value that is no finite number, bit 1 one outside of its space.
export async function series(path, query) {
  const { values, shape: [n, , k], rest } = await arrays(path, query);
  return { values, flags: rest, n, k };
}

export function address(path, query = {}) {
  const every = Object.entries(query).flatMap(([name, value]) => (Array.isArray(value) ? value.map((each) => [name, each]) : [[name, value]]));
  const given = every.filter(([, value]) => value !== "" && value !== undefined && value !== null);
  return path + (given.length ? "?" + new URLSearchParams(given) : "");
}

// Keep the state of a page in its address. If the user has just gone on to another page, its address stays.
export function remember(path, query) {
  const [shown, asked] = location.hash.split("?");
  const queue = new URLSearchParams(asked).get("queue"); // of a review, which the page does not know
  if (decodeURIComponent(shown) === decodeURIComponent(path)) history.replaceState(null, "", address(path, { queue, ...query }));
}

// An element with attributes, listeners (onclick and so on) and children. Text is never parsed as HTML.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== null));
  return made;
}

// A value in a few characters: at most five digits of a number that is not whole.
export function short(value) {
  if (value === null || value === undefined || value === false) return "";
  if (value === true) return "yes";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en");
  const large = Math.abs(value) >= 1e6 || (Math.abs(value) < 1e-3 && value !== 0);
  return large ? value.toExponential(2) : String(Number(value.toPrecision(5)));
}

// A number and its unit: one episode, two episodes.
export const counted = (number, unit) => `${number.toLocaleString("en")} ${unit}${number === 1 ? "" : "s"}`;

export function bytes(number) {
  const power = Math.min(Math.floor(Math.log10(Math.max(number, 1)) / 3), 5);
  return `${Number((number / 1000 ** power).toPrecision(3))} ${["B", "kB", "MB", "GB", "TB", "PB"][power]}`;
}

// A picture of a row. Small ones are shown with their pixels. In place of one that cannot be read is the message of the server.
export function picture(attributes) {
  const said = element("span", { class: "dim unread" });
  const showed = ({ target }) => {
    said.remove();
    target.hidden = false;
    target.classList.toggle("pixels", target.naturalWidth < 160);
  };
  const failed = async ({ target }) => {
    const { src } = target;
    const text = await fetch(src).then(async (answer) => (answer.ok ? "not a picture that this browser shows" : (await answer.json()).error), (error) => error.message);
    if (target.src !== src) return; // another row is wanted by now
    target.loading = "eager"; // a lazy one that is hidden would never show the next row
    target.hidden = true;
    said.textContent = said.title = text;
    target.after(said);
  };
  return element("img", { loading: "lazy", alt: "", ...attributes, onload: showed, onerror: failed });
}

// A drawing of the server, as elements of this page. Nothing in it is run: the page allows scripts of its own files only.
export function drawing(text) {
  const made = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  return document.importNode(made, true);
}
