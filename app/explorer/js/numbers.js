/** Numbers as the service writes them, and as people read them. */

/** @typedef {number | "NaN" | "Infinity" | "-Infinity"} WireNumber */
/** @typedef {{ dtype: string, shape: number[], data: unknown }} Tensor */

// What no string of a request is: it stands for -0, which JSON.stringify writes as 0.
const MINUS_ZERO = "\u0000-0";
// The strings and the numbers of JSON.
const SCALARS = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g;

/**
 * Return the number that JSON holds as a number or as a word.
 *
 * @param {unknown} value
 * @returns {number}
 */
export function number(value) {
  return typeof value === "boolean" ? Number(value) : Number(/** @type {WireNumber} */ (value));
}

/**
 * Return the value of JSON, in which a whole number that JavaScript would round is a string of its digits.
 *
 * @param {string} json
 * @returns {any}
 */
export function parsed(json) {
  const isRounded = (/** @type {string} */ each) => /^-?\d+$/.test(each) && !Number.isSafeInteger(Number(each));
  return JSON.parse(json.replaceAll(SCALARS, (each) => (isRounded(each) ? `"${each}"` : each)));
}

/**
 * Return a value as JSON, in which -0 stays what it is.
 *
 * @param {unknown} value
 * @returns {string}
 */
export function jsonOf(value) {
  return JSON.stringify(value, (_, each) => (Object.is(each, -0) ? MINUS_ZERO : each)).replaceAll(JSON.stringify(MINUS_ZERO), "-0.0");
}

/**
 * Return whether the numbers of a dtype are pairs of a real and an imaginary part.
 *
 * @param {string} dtype
 * @returns {boolean}
 */
export function isComplex(dtype) {
  return dtype.startsWith("complex");
}

/**
 * Return the numbers of nested lists in one list.
 *
 * @param {unknown} nested
 * @returns {number[]}
 */
export function numbers(nested) {
  return Array.isArray(nested) ? nested.flat(16).map(number) : [number(nested)];
}

/**
 * Return the shape of nested lists.
 *
 * @param {unknown} nested
 * @returns {number[]}
 */
export function shapeOf(nested) {
  return Array.isArray(nested) ? [nested.length, ...(nested.length ? shapeOf(nested[0]) : [])] : [];
}

/**
 * Return nested lists with ones in place of their numbers.
 *
 * @param {unknown} nested
 * @returns {unknown}
 */
export function onesLike(nested) {
  return Array.isArray(nested) ? nested.map(onesLike) : 1;
}

/**
 * Return numbers as nested lists of a shape.
 *
 * @param {readonly number[]} flat
 * @param {readonly number[]} shape
 * @returns {unknown}
 */
export function nest(flat, shape) {
  if (!shape.length) return flat[0];
  const [count = 0, ...rest] = shape;
  const size = rest.reduce((product, length) => product * length, 1);
  return Array.from({ length: count }, (_, i) => nest(flat.slice(i * size, (i + 1) * size), rest));
}

/**
 * Return a number as text of a few digits, with a real minus.
 *
 * @param {number | null | undefined} value
 * @param {number} [digits]
 * @returns {string}
 */
export function short(value, digits = 6) {
  if (value === null || value === undefined) return "–";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text =
    size >= 1e-4 && size < 1e7
      ? String(Number(value.toPrecision(digits)))
      : value.toExponential(Math.min(digits - 1, 3)).replace("e+", "e");
  return text.replace(/^-/, "−").replace("e-", "e−");
}

/**
 * Return a value of a dtype as text: whole numbers with all digits, others as `short` does.
 *
 * @param {string} dtype
 * @param {unknown} value
 * @param {number} digits
 * @returns {string}
 */
export function textOf(dtype, value, digits) {
  return /^u?int/.test(dtype) ? String(value).replace(/^-/, "−") : short(number(value), digits);
}

/**
 * Return pairs of a real and an imaginary part, one after the other, as texts such as 1 − 2i.
 *
 * @param {readonly number[]} parts
 * @param {number} digits
 * @returns {string[]}
 */
export function complexTexts(parts, digits) {
  return Array.from({ length: parts.length / 2 }, (_, i) => {
    const [real = 0, imaginary = 0] = parts.slice(2 * i, 2 * i + 2);
    const sign = imaginary < 0 ? "−" : "+";
    return `${short(real, digits)} ${sign} ${short(Math.abs(imaginary), digits)}i`;
  });
}

/**
 * Return `count` numbers from `from` to `to`, both included.
 *
 * @param {number} from
 * @param {number} to
 * @param {number} count
 * @returns {number[]}
 */
export function spread(from, to, count) {
  return Array.from({ length: count }, (_, i) => {
    const share = i / (count - 1);
    const x = from * (1 - share) + to * share;
    // Numbers that are round in decimals stay so, and 0 is 0.
    return Number(x.toPrecision(12)) + 0 || 0;
  });
}

/**
 * Return finite numbers as they are, and `null` in place of others, which a plot leaves out.
 *
 * @param {number | null | undefined} value
 * @returns {number | null}
 */
export function plotted(value) {
  return value !== null && value !== undefined && Number.isFinite(value) ? value : null;
}

/**
 * Return a random generator with a seed (mulberry32), whose numbers are from -1 to 1.
 *
 * @param {number} seed
 * @returns {() => number}
 */
export function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 31 - 1;
  };
}

/**
 * Return the index of the nearest of sorted numbers.
 *
 * @param {readonly number[]} sorted
 * @param {number} x
 */
export function nearest(sorted, x) {
  const apart = sorted.map((each) => Math.abs(each - x));
  return apart.indexOf(Math.min(...apart));
}

/**
 * Return whether there is a number.
 *
 * @param {number | null | undefined} value
 * @returns {value is number}
 */
export function isNumber(value) {
  return value !== null && value !== undefined;
}
