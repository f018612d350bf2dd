/** An answer of the service: each tensor with its numbers, and small matrices as heat maps. */

import { make } from "./dom.js";
import { heatMap, isSmall } from "./heatmap.js";
import { complexTexts, isComplex, numbers, shapeOf, short, textOf } from "./numbers.js";

// The most numbers that are written out.
const WRITTEN = 400;

/**
 * Return the elements that show an answer; where it has uncertainties, ± says that of each number.
 *
 * @param {any} answer
 * @param {Record<string, unknown>} inputs
 * @returns {HTMLElement[]}
 */
export function shown(answer, inputs) {
  const sizeOf = (/** @type {string} */ name) => (name in inputs ? numbers(inputs[name]).length : 0);
  const { uncertainty = {}, no_uncertainty: reasons = {}, ...results } = answer;
  return [...tensors(results, [])].map(({ path, tensor, reason }) => {
    const name = path.join(".");
    if (tensor === null) return make("section", { class: "tensor" }, make("h3", {}, name), make("p", {}, `none: ${reason}`));
    const parts = numbers(tensor.data);
    const hasPairs = isComplex(tensor.dtype);
    const offs = offsOf(uncertainty, path, parts.length);
    const unknown = at(reasons, path);
    const texts = (hasPairs ? complexTexts(parts, 7) : [tensor.data].flat(17).map((each) => textOf(tensor.dtype, each, 7))).map(
      (each, i) => each + (hasPairs ? plusMinus(offs[2 * i]) + plusMinus(offs[2 * i + 1], "i") : plusMinus(offs[i])),
    );
    const isBlock = path[0] === "jacobian" || path[0] === "hessian";
    // The columns of a block of complex numbers are complex, and those of any other are the parts.
    const size = sizeOf(path.at(-1) ?? "") / (hasPairs ? 2 : 1);
    const shape = tensor.shape;
    const [rows, columns] =
      isBlock && size && texts.length % size === 0
        ? [texts.length / size, size]
        : shape.length === 2
          ? [shape[0] ?? 0, shape[1] ?? 0]
          : [0, 0];
    return make(
      "section",
      { class: "tensor" },
      make("h3", {}, name, " ", make("span", { class: "muted" }, `${tensor.dtype} [${shape.join(", ")}]`)),
      typeof unknown === "string" && make("p", { class: "muted" }, `± none: ${unknown.replaceAll("_", " ")}`),
      !hasPairs && isSmall(rows, columns) && rows * columns > 1 && heatMap(parts, rows, columns, name),
      rows && columns ? table(texts, rows, columns) : written(tensor, parts.length, offs),
    );
  });
}

/**
 * Return the uncertainties of the numbers of a tensor, none if there are none.
 *
 * @param {any} uncertainty
 * @param {string[]} path
 * @param {number} count
 * @returns {number[]}
 */
function offsOf(uncertainty, path, count) {
  const found = at(uncertainty, path);
  const offs = found?.data === undefined ? [] : numbers(found.data);
  return offs.length === count ? offs : [];
}

/**
 * Return what is at a path of a tree.
 *
 * @param {any} tree
 * @param {string[]} path
 * @returns {any}
 */
function at(tree, path) {
  return path.reduce((found, name) => (Array.isArray(found) ? found[Number(name) - 1] : found?.[name]), tree);
}

/**
 * @param {number | undefined} off
 * @param {string} [unit]
 * @returns {string}
 */
function plusMinus(off, unit = "") {
  return off === undefined ? "" : ` ± ${short(off, 2)}${unit}`;
}

/**
 * @param {import("./numbers.js").Tensor} tensor
 * @param {number} count
 * @param {number[]} offs
 * @returns {HTMLElement}
 */
function written(tensor, count, offs) {
  if (count > WRITTEN) return tooMany(count);
  return make("pre", { class: "code", tabindex: "0" }, text(tensor.dtype, tensor.data, offs.values()));
}

/**
 * @param {string[]} texts
 * @param {number} rows
 * @param {number} columns
 * @returns {HTMLElement}
 */
function table(texts, rows, columns) {
  if (rows * columns > WRITTEN) return tooMany(rows * columns);
  const lines = Array.from({ length: rows }, (_, i) => texts.slice(i * columns, (i + 1) * columns));
  const body = make("tbody", {}, lines.map((line) => make("tr", {}, line.map((each) => make("td", {}, each)))));
  const properties = { class: "scroll", tabindex: "0", role: "group", "aria-label": "Numbers" };
  return make("div", properties, make("table", { class: "matrix" }, body));
}

/** @param {number} count */
function tooMany(count) {
  return make("p", { class: "muted" }, `${count} numbers, too many to write out`);
}

/**
 * @param {string} dtype
 * @param {unknown} nested
 * @param {Iterator<number>} offs
 * @returns {string}
 */
function text(dtype, nested, offs) {
  if (Array.isArray(nested)) return `[${nested.map((each) => text(dtype, each, offs)).join(", ")}]`;
  return textOf(dtype, nested, 8) + plusMinus(offs.next().value);
}

/**
 * Yield the tensors of an answer with their paths; the orders of gradients count from 1.
 *
 * @param {any} tree
 * @param {string[]} path
 * @param {any} [absent]
 * @returns {Generator<{ path: string[], tensor: any, reason: string }>}
 */
function* tensors(tree, path, absent = {}) {
  if (tree === null) yield { path, tensor: null, reason: String(absent ?? "").replaceAll("_", " ") };
  else if (tree.dtype && tree.shape) yield { path, tensor: tree, reason: "" };
  else if (tree.derivative !== undefined) {
    const parts = { derivative: tree.derivative, error_bar: tree.error_bar };
    for (const [name, data] of Object.entries(parts)) {
      yield { path: [...path, name], tensor: { dtype: "", shape: shapeOf(data), data }, reason: "" };
    }
  } else if (typeof tree === "object") {
    const reasons = path.length ? absent : (tree.absent ?? {});
    for (const [name, value] of Object.entries(tree)) {
      if (typeof value !== "object" || (!path.length && name === "absent")) continue;
      const label = Array.isArray(tree) ? String(Number(name) + 1) : name;
      yield* tensors(value, [...path, label], path.length || typeof reasons !== "object" ? reasons?.[name] : reasons);
    }
  }
}
