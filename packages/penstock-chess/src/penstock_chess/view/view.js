// The board of a game of chess, as white sees it, with the last move, the next one, and all moves to choose from.

import { json, element } from "/static/net.js";

const SVG = "http://www.w3.org/2000/svg";
// Outlines on a square of 45 x 45.
const PIECES = {
  p: "M22.5 9a5 5 0 0 1 3.2 8.9c3.8 2 5.6 6.2 5.8 12.1h-18c.2-5.9 2-10.1 5.8-12.1A5 5 0 0 1 22.5 9zM11 32.5h23v5H11z",
  n: "M13 37.5c0-8 4-11 9-15.5-4 1-6.5 2.5-8.5 5L8.5 23.5c1-6 5-11 9.5-13.5l.5-4.5 4.5 3c8.5 1 13.5 9 12.5 29z",
  b: "M22.5 5.5a3 3 0 0 1 1.9 5.4c4.9 3.6 7.1 8 6.1 12.6-.6 2.6-2 4.5-3.5 6.5h-9c-1.5-2-2.9-3.9-3.5-6.5-1-4.6 1.2-9 6.1-12.6A3 3 0 0 1 22.5 5.5zM11 32.5h23v5H11z",
  r: "M11 8.5h5v4h4v-4h5v4h4v-4h5v8.5l-4 3v10l4 3v4.5H11V33l4-3V20l-4-3z",
  q: "M8 12.5l6.5 8.5 2.5-13 5.5 12 5.5-12 2.5 13 6.5-8.5-3.5 18H11.5zM11 32.5h23v5H11z",
  k: "M21 4.5h3v3h3v3h-3V15c4.5-2 11.5-.5 11.5 5 0 4.5-3.5 6.5-5 10.5h-16c-1.5-4-5-6-5-10.5 0-5.5 7-7 11.5-5v-4.5h-3v-3h3zM11 32.5h23v5H11z",
};

function shape(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const corner = (square) => [(square % 8) * 45, (7 - Math.floor(square / 8)) * 45];

export async function panel(api, number, pick) {
  const game = await json(`${api}/view/${number}`);
  const board = shape("svg", { viewBox: "0 0 360 360", class: "board", role: "img" });
  const caption = element("figcaption", {});
  const list = element("div", { class: "moves", role: "group", "aria-label": "moves" });
  const buttons = game.moves.map((move, row) =>
    element("button", { onclick: () => pick(row + 1) }, `${game.turns[row] === "white" ? `${moveNumber(row)}. ` : ""}${move || "?"}`));
  list.append(...buttons);

  function moveNumber(row) {
    return Math.floor((row + (game.turns[0] === "black" ? 1 : 0)) / 2) + 1;
  }

  function show(row) {
    const place = Math.min(row, game.boards.length - 1);
    if (place < 0) return;
    const squares = Array.from({ length: 64 }, (_, square) => {
      const [x, y] = corner(square);
      const dark = (square + Math.floor(square / 8)) % 2 === 0;
      return shape("rect", { x, y, width: 45, height: 45, class: dark ? "dark" : "light" });
    });
    for (const square of place > 0 ? game.squares[place - 1] : []) {
      const [x, y] = corner(square);
      squares.push(shape("rect", { x, y, width: 45, height: 45, class: "before" }));
    }
    const pieces = [...game.boards[place]].flatMap((letter, square) => {
      if (letter === ".") return [];
      const [x, y] = corner(square);
      const white = letter === letter.toUpperCase();
      return [shape("path", { d: PIECES[letter.toLowerCase()], transform: `translate(${x} ${y})`, class: white ? "white" : "black" })];
    });
    board.replaceChildren(...squares, ...pieces, ...arrow(game.squares[place]));
    const move = game.moves[place] ? `${moveNumber(place)}${game.turns[place] === "white" ? "." : "..."} ${game.moves[place]}` : "no move";
    caption.textContent = `${game.turns[place]} to move: ${move}${game.cut ? `; the first ${game.boards.length} positions` : ""}`;
    board.setAttribute("aria-label", caption.textContent);
    board.dataset.row = String(place);
    for (const [i, button] of buttons.entries()) button.setAttribute("aria-current", String(i === place - 1));
    const current = buttons[place - 1];
    if (current) list.scrollTop = current.offsetTop - list.offsetTop - list.clientHeight / 2;
  }

  const figure = element("figure", { class: "chess" }, element("div", {}, board, caption), list);
  return { figure, show, leave() {} };
}

function arrow(squares) {
  if (!squares.length) return [];
  const [[x, y], [u, v]] = squares.map((square) => corner(square).map((side) => side + 22.5));
  const length = Math.hypot(u - x, v - y) || 1;
  const [a, b] = [(u - x) / length, (v - y) / length];
  const [tipX, tipY] = [u - a * 6, v - b * 6];
  const points = [[tipX, tipY], [tipX - a * 14 - b * 8, tipY - b * 14 + a * 8], [tipX - a * 14 + b * 8, tipY - b * 14 - a * 8]];
  return [shape("line", { x1: x, y1: y, x2: tipX - a * 12, y2: tipY - b * 12, class: "arrow" }),
    shape("polygon", { points: points.map((point) => point.join(",")).join(" "), class: "arrow" })];
}
