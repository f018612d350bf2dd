/** A small picture of an op and its derivative, for the list. */

import { firstRange, hasCurve } from "./curve.js";
import { numbers, spread } from "./numbers.js";
import { make } from "./dom.js";

const WIDTH = 132;
const HEIGHT = 62;
const POINTS = 67;
const SVG = "http://www.w3.org/2000/svg";

/**
 * Return a place for the sketch of an op, which is drawn once it comes into view.
 *
 * @param {import("./service.js").Service} service
 * @param {string} op
 * @returns {HTMLElement}
 */
export function sketch(service, op) {
  const place = make("div", { class: "sketch", "aria-hidden": "true" });
  const watcher = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    watcher.disconnect();
    draw(service, op, place).catch(() => {
      // The card says what is wrong with an op; a sketch that cannot be drawn stays empty.
    });
  });
  watcher.observe(place);
  return place;
}

/**
 * @param {import("./service.js").Service} service
 * @param {string} op
 * @param {HTMLElement} place
 */
async function draw(service, op, place) {
  /** @type {import("./types.d.ts").Contract} */
  const contract = await service.get(`/v1/ops/${encodeURIComponent(op)}`);
  const [input] = contract.inputs;
  const [output] = contract.outputs;
  if (!hasCurve(contract) || !input || !output) {
    place.append(make("span", { class: "shapes" }, `${shapes(contract.inputs)} → ${shapes(contract.outputs)}`));
    return;
  }
  const x = spread(...firstRange(contract), POINTS);
  const answer = await service.post(`/v1/ops/${encodeURIComponent(op)}/gradients`, { inputs: { [input.name]: x } });
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  const lines = [answer.outputs[output.name], answer.gradients[0][input.name]].map((tensor) => numbers(tensor.data));
  svg.setAttribute("preserveAspectRatio", "none");
  lines.forEach((values, k) => {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", k ? "first" : "y");
    path.setAttribute("d", outline(values, Math.max(...values.filter(Number.isFinite).map(Math.abs), 1e-300)));
    svg.append(path);
  });
  place.append(svg);
}

/**
 * @param {number[]} values
 * @param {number} size
 * @returns {string}
 */
function outline(values, size) {
  let isDown = false;
  return values
    .map((value, i) => {
      const before = values[i - 1];
      const isBroken = !Number.isFinite(value) || (before !== undefined && Math.abs(value - before) > size / 4 && i > 0 && Math.abs(value - before) > 20 * Math.abs((values[i + 1] ?? value) - value));
      if (!Number.isFinite(value)) {
        isDown = false;
        return "";
      }
      const at = `${((i / (POINTS - 1)) * WIDTH).toFixed(1)} ${(HEIGHT / 2 - (value / size) * (HEIGHT / 2 - 4)).toFixed(1)}`;
      const step = isDown && !isBroken ? `L${at}` : `M${at}`;
      isDown = true;
      return step;
    })
    .join("");
}

/** @param {{ name: string, shape: (string | number)[] }[]} slots */
function shapes(slots) {
  return slots.map((slot) => `${slot.name}[${slot.shape.join(", ")}]`).join(", ");
}
