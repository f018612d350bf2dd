/** The range of a plot, as it is entered and as it is written. */

import { decimal, shown } from "./entered.js";

// The largest sizes of the ends of a range: numeric derivatives need room below the overflow of the dtype.
const LARGEST = /** @type {Record<string, number>} */ ({ float64: 1e300, float32: 1e37, bfloat16: 1e37, float16: 6e4 });
// The least width of a range, as a fraction of its ends: narrower ones have no points between them.
const NARROWEST = 1e-9;

/**
 * Return the range that two texts stand for; raise an error for texts that are none.
 *
 * @param {{ from: string, to: string }} ends
 * @param {string} name
 * @param {string} dtype
 * @returns {{ from: number, to: number }}
 */
export function spanOf(ends, name, dtype) {
  const [from, to] = [decimal(`${name} from`, ends.from), decimal(`${name} to`, ends.to)];
  const most = LARGEST[dtype] ?? Infinity;
  const size = Math.max(Math.abs(from), Math.abs(to));
  const got = `got ${shown(ends.from)} to ${shown(ends.to)}`;
  if (!(from < to)) throw new Error(`expected a range from a number to a larger one, ${got}`);
  if (size > most) throw new Error(`expected a range between -${most} and ${most} in ${dtype}, ${got}`);
  if (to - from < NARROWEST * size) throw new Error(`expected a range wider than ${NARROWEST * size}, ${got}`);
  return { from, to };
}

/**
 * Return the end of a range with the digits that its width makes visible.
 *
 * @param {number} end
 * @param {number} width
 */
export function rounded(end, width) {
  const digits = Math.ceil(Math.log10(Math.max(Math.abs(end), width) / width)) + 5;
  return String(Number(end.toPrecision(Math.max(1, Math.min(17, digits || 6)))));
}
