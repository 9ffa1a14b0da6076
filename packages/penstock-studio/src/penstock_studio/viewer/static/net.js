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
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  return path + (given.length ? "?" + new URLSearchParams(given) : "");
}

// Keep the state of a page in its address. If the user has just gone on to another page, its address stays.
export function remember(path, query) {
  const shown = decodeURIComponent(location.hash.split("?")[0]);
  if (shown === decodeURIComponent(path)) history.replaceState(null, "", address(path, query));
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

export function short(value) {
  if (value === null || value === undefined || value === false) return "";
  if (value === true) return "yes";
  if (typeof value !== "number" || Number.isInteger(value)) return String(value);
  return Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3 ? value.toExponential(2) : value.toPrecision(5).replace(/\.?0+$/, "");
}

// A drawing of the server, as elements of this page. Nothing in it is run: the page allows scripts of its own files only.
export function drawing(text) {
  const made = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  return document.importNode(made, true);
}
