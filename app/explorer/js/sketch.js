/** A small picture of an op and its derivative, for the list. */

import { firstRange } from "./curve.js";
import { numbers, spread } from "./numbers.js";
import { fill, make } from "./dom.js";
import { Recovery } from "./recovery.js";
import { directionOf, isFloat, pointOn, slopeAlong, valueOf } from "./slice.js";

/** @typedef {import("./types.d.ts").Contract} Contract */
/** @typedef {{ y: number[], slope: number[] }} Lines */

const WIDTH = 132;
const HEIGHT = 62;
const SVG = "http://www.w3.org/2000/svg";
// The points of an elementwise op, which are one request, and those along a line, which are one request each.
const POINTS = 67;
const FEW = 13;
const REACH = 2;
// How many sketches are drawn at a time: a list must not keep the service from other work.
const AT_ONCE = 2;

/** @typedef {{ place: HTMLElement, draw: () => Promise<void> }} Job */

/** @type {Set<Job>} */
const waiting = new Set();
let running = 0;

/**
 * Return a place for the sketch of an op, which is drawn in turn while it is in view.
 *
 * @param {import("./service.js").Service} service
 * @param {string} op
 * @returns {HTMLElement}
 */
export function sketch(service, op) {
  const place = make("div", { class: "sketch", "aria-hidden": "true" });
  // A sketch that an outage has ended is drawn once more.
  const recovery = new Recovery(service, () => begin(job), () => {});
  const job = {
    place,
    draw: () => draw(service, op, place).then(() => recovery.end(), (error) => recovery.end(error)),
  };
  const watcher = new IntersectionObserver((entries) => {
    if (place.dataset["drawn"]) return watcher.disconnect();
    // A sketch that has left the view gives up its turn.
    if (entries.at(-1)?.isIntersecting) begin(job);
    else waiting.delete(job);
  });
  watcher.observe(place);
  return place;
}

/** @param {Job} job */
function begin(job) {
  waiting.add(job);
  goOn();
}

function goOn() {
  for (const job of waiting) {
    if (running >= AT_ONCE) return;
    waiting.delete(job);
    job.place.dataset["drawn"] = "true";
    running += 1;
    // The card says what is wrong with an op; a sketch that cannot be drawn stays empty.
    void job.draw().finally(() => {
      running -= 1;
      goOn();
    });
  }
}

/**
 * @param {import("./service.js").Service} service
 * @param {string} op
 * @param {HTMLElement} place
 */
async function draw(service, op, place) {
  const path = `/v1/ops/${encodeURIComponent(op)}`;
  /** @type {Contract} */
  const contract = await service.get(path);
  // Nothing is traced or compiled for a sketch.
  const common = contract.modes.includes("eager") ? { mode: "eager" } : {};
  const post = (/** @type {Record<string, unknown>} */ body) => service.post(`${path}/vjp`, { ...common, ...body, outputs: true });
  const isElementwise = contract.batching === "elementwise";
  fill(place, !isElementwise && make("span", { class: "shapes" }, `${shapes(contract.inputs)} → ${shapes(contract.outputs)}`));
  if (!contract.claim) return;
  const { y, slope } = isElementwise ? await alongFirst(contract, post) : await alongLine(contract, post);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  [y, slope].forEach((values, k) => {
    const line = document.createElementNS(SVG, "path");
    line.setAttribute("class", k ? "first" : "y");
    line.setAttribute("d", outline(values, Math.max(...values.filter(Number.isFinite).map(Math.abs), 1e-300)));
    svg.append(line);
  });
  place.prepend(svg);
}

/**
 * Return an elementwise op over the domain of its first float input; the others keep their first number.
 *
 * @param {Contract} contract
 * @param {(body: Record<string, unknown>) => Promise<any>} post
 * @returns {Promise<Lines>}
 */
async function alongFirst(contract, post) {
  const [example] = contract.examples;
  const dtype = contract.dtypes[0] ?? "";
  const moved = contract.inputs.find((slot) => isFloat(slot, dtype)) ?? contract.inputs[0];
  const x = spread(...firstRange(moved), POINTS);
  const inputs = Object.fromEntries(
    contract.inputs.map(({ name }) => [name, name === moved?.name ? x : x.map(() => numbers(example?.inputs[name])[0] ?? 1)]),
  );
  const { outputs, gradients } = await post({ inputs, attrs: example?.attrs ?? {} });
  return { y: numbers(Object.values(outputs)[0].data), slope: numbers(gradients[moved?.name ?? ""].data) };
}

/**
 * Return any other op along a random line through its first example.
 *
 * @param {Contract} contract
 * @param {(body: Record<string, unknown>) => Promise<any>} post
 * @returns {Promise<Lines>}
 */
async function alongLine(contract, post) {
  const [example] = contract.examples;
  const at = example?.inputs ?? {};
  const direction = directionOf(contract, at, contract.dtypes[0] ?? "", { seed: 1 });
  /** @type {Lines} */
  const lines = { y: [], slope: [] };
  for (const t of spread(-REACH, REACH, FEW)) {
    const { outputs, gradients } = await post({ inputs: pointOn({ at, direction }, t), attrs: example?.attrs ?? {} });
    lines.y.push(valueOf(outputs, null));
    lines.slope.push(slopeAlong(direction, gradients));
  }
  return lines;
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
      if (!Number.isFinite(value)) {
        isDown = false;
        return "";
      }
      const at = `${((i / (values.length - 1)) * WIDTH).toFixed(1)} ${(HEIGHT / 2 - (value / size) * (HEIGHT / 2 - 4)).toFixed(1)}`;
      const step = isDown && !isJump(values, i, size) ? `L${at}` : `M${at}`;
      isDown = true;
      return step;
    })
    .join("");
}

/**
 * Return whether a line has a jump before a point: a large step beside a much smaller one.
 *
 * @param {number[]} values
 * @param {number} i
 * @param {number} size
 */
function isJump(values, i, size) {
  const steps = [i - 1, i, i + 1].map((k) => Math.abs((values[k] ?? NaN) - (values[k - 1] ?? NaN)));
  const [before = NaN, own = NaN, after = NaN] = steps;
  return own > size / 4 && (own > 20 * before || own > 20 * after);
}

/** @param {{ name: string, shape: (string | number)[] }[]} slots */
function shapes(slots) {
  return slots.map((slot) => `${slot.name}[${slot.shape.join(", ")}]`).join(", ");
}
