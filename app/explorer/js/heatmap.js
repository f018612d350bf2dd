/** A small matrix as a heat map: blue below 0, red above, and what is not finite in a third colour. */

import { make } from "./dom.js";
import { short } from "./numbers.js";

const MOST = 64;
const CELL = 28;
const BELOW = [33, 102, 172];
const ABOVE = [178, 24, 43];

/**
 * Return whether a matrix is small enough to be shown.
 *
 * @param {number} rows
 * @param {number} columns
 * @returns {boolean}
 */
export function isSmall(rows, columns) {
  return rows > 0 && columns > 0 && rows <= MOST && columns <= MOST;
}

/**
 * Make the heat map of a matrix, whose numbers are in rows.
 *
 * @param {number[]} values
 * @param {number} rows
 * @param {number} columns
 * @param {string} name
 * @returns {HTMLElement}
 */
export function heatMap(values, rows, columns, name) {
  const size = Math.max(...values.filter(Number.isFinite).map(Math.abs), 0);
  const cell = Math.max(5, Math.min(CELL, Math.floor(560 / columns)));
  const canvas = make("canvas", { width: columns * cell, height: rows * cell, class: "heat", role: "img" });
  const lost = values.filter((value) => !Number.isFinite(value)).length;
  const range = `${rows} by ${columns}, largest size ${short(size, 4)}${lost ? `, ${lost} not finite` : ""}`;
  canvas.setAttribute("aria-label", `Heat map of ${name}: ${range}`);
  const context = canvas.getContext("2d");
  if (!context) return canvas;
  values.forEach((value, i) => {
    context.fillStyle = colourOf(value, size);
    context.fillRect((i % columns) * cell, Math.floor(i / columns) * cell, cell - 1, cell - 1);
  });
  const said = make("figcaption", { class: "muted small" }, range);
  canvas.addEventListener("pointermove", (event) => {
    const column = Math.floor((event.offsetX / canvas.clientWidth) * columns);
    const row = Math.floor((event.offsetY / canvas.clientHeight) * rows);
    said.textContent = `[${row}, ${column}] = ${short(values[row * columns + column], 8)}`;
  });
  canvas.addEventListener("pointerleave", () => (said.textContent = range));
  return make("figure", {}, canvas, said);
}

/**
 * @param {number} value
 * @param {number} size
 * @returns {string}
 */
function colourOf(value, size) {
  if (!Number.isFinite(value)) return "#9c27b0";
  const share = size ? Math.abs(value) / size : 0;
  const towards = value < 0 ? BELOW : ABOVE;
  const mixed = towards.map((channel) => Math.round(244 + (channel - 244) * share ** 0.7));
  return `rgb(${mixed.join(" ")})`;
}
