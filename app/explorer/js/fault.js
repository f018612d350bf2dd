/** Where the number of a finding is. */

import { number, numbers, shapeOf, short } from "./numbers.js";

/** @typedef {import("./verdict.js").Finding} Finding */

/**
 * Return the index of the number at fault in the flat input of a finding.
 *
 * @param {Finding} finding
 * @returns {number}
 */
export function flatIndex({ point, input, worst }) {
  const shape = shapeOf(point?.inputs[input ?? ""]);
  // A call with one element of an elementwise op has no index.
  return worst?.index?.length === shape.length ? worst.index.reduce((flat, i, k) => flat * (shape[k] ?? 1) + i, 0) : 0;
}

/**
 * Return the cotangent of the number at fault of an op with one output, `null` for 1.
 *
 * @param {Finding} finding
 * @returns {string | null}
 */
export function cotangentOf(finding) {
  const [cotangents] = Object.values(finding.point?.cotangents ?? {});
  const own = cotangents === undefined ? 1 : (numbers(cotangents)[flatIndex(finding)] ?? 1);
  return own === 1 || !Number.isFinite(own) ? null : String(own);
}

/**
 * Return where a number is, as far as it is known.
 *
 * @param {NonNullable<Finding["worst"]>} worst
 */
export function placeOf({ index, x }) {
  const known = [index && `[${index.join(", ")}]`, x !== null && x !== undefined && `x = ${short(number(x), 8)}`].filter(Boolean);
  return known.length ? `at ${known.join(", ")}: ` : "";
}
