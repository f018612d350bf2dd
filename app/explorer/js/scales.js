/** The scales of the plots: what they show of their numbers, and whether linearly. */

// The largest value is so many times the typical one where a linear scale would show a flat line.
const WIDE = 200;
const MARGIN = 0.08;
const ROUNDING = 1e-9;

/** @typedef {import("./types.d.ts").Column} Column */

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/**
 * Return whether numbers range so widely that they need an arcsinh scale, and where that is linear.
 *
 * @param {Column[]} columns
 * @param {string} wanted auto, linear or arcsinh
 * @returns {{ isWide: boolean, linear: number }}
 */
export function widthOf(columns, wanted) {
  const every = columns.flat().map((each) => Math.abs(each ?? 0));
  const largest = Math.max(...every) || 1;
  // Smaller numbers are rounding errors of 0.
  const sizes = every.filter((each) => each > ROUNDING * largest).sort((a, b) => a - b);
  const typical = sizes[Math.floor(sizes.length / 2)] ?? 1;
  const isWide = wanted === "arcsinh" || (wanted === "auto" && largest > WIDE * typical);
  return { isWide, linear: 10 ** Math.floor(Math.log10(typical)) };
}

/**
 * Return the range of an axis: the finite numbers and 0, with a margin.
 *
 * @param {number | null} least
 * @param {number | null} most
 * @param {boolean} isWide
 * @param {number} linear
 * @returns {[number, number]}
 */
export function rangeOf(least, most, isWide, linear) {
  let low = Math.min(least ?? 0, 0);
  let high = Math.max(most ?? 0, 0);
  if (low === high) [low, high] = [low - 1, high + 1];
  if (isWide) {
    const bend = (/** @type {number} */ v) => Math.asinh(v / linear);
    const unbend = (/** @type {number} */ v) => Math.sinh(v) * linear;
    const room = MARGIN * (bend(high) - bend(low));
    return [unbend(bend(low) - room), unbend(bend(high) + room)];
  }
  const room = MARGIN * (high - low);
  return [low - room, high + room];
}

/**
 * Return the ticks of an arcsinh axis: 0 and a few powers of ten to each side.
 *
 * @param {number} least
 * @param {number} most
 * @param {number} linear
 * @param {number} count the most ticks to each side
 * @returns {number[]}
 */
function wideTicks(least, most, linear, count) {
  const first = Math.round(Math.log10(linear));
  const last = Math.floor(Math.log10(Math.max(-least, most)));
  const step = Math.max(1, Math.ceil((last - first + 1) / count));
  const powers = [];
  for (let power = last; power >= first; power -= step) powers.push(10 ** power);
  const ticks = [...powers.map((each) => -each), 0, ...powers.toReversed()];
  return ticks.filter((tick) => tick >= least && tick <= most);
}

/**
 * Return the text of a tick of an arcsinh axis, such as −10⁵.
 *
 * @param {number} tick
 * @returns {string}
 */
function powerText(tick) {
  if (tick === 0) return "0";
  const power = Math.round(Math.log10(Math.abs(tick)));
  const sign = tick < 0 ? "−" : "";
  if (power >= -2 && power <= 3) return `${sign}${Number((10 ** power).toPrecision(3))}`;
  const digits = [...String(Math.abs(power))].map((digit) => SUPERSCRIPTS[Number(digit)]).join("");
  return `${sign}10${power < 0 ? "⁻" : ""}${digits}`;
}

/**
 * Return what an arcsinh axis has for its ticks.
 *
 * @param {number} linear
 * @param {number} count
 * @returns {Partial<uPlot.Axis>}
 */
export function wideAxis(linear, count) {
  return {
    splits: (_, __, least, most) => wideTicks(least, most, linear, count),
    filter: (_, splits) => splits,
    values: (_, ticks) => ticks.map(powerText),
  };
}

/**
 * Return the range of a strip, which is symmetric.
 *
 * @param {number | null} least
 * @param {number | null} most
 * @returns {[number, number]}
 */
export function stripRange(least, most) {
  const size = 1.6 * Math.max(2, Math.abs(least ?? 0), Math.abs(most ?? 0));
  return [-size, size];
}

/**
 * Return the least and the largest of numbers, both 0 if there are none.
 *
 * @param {Column[]} columns
 * @returns {[number, number]}
 */
export function endsOf(columns) {
  const every = columns.flat().filter((each) => each !== null);
  return every.length ? [Math.min(...every), Math.max(...every)] : [0, 0];
}
