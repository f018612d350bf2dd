/** What a person enters: numbers and JSON. What is neither is refused with the words that were entered. */

const DECIMAL = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const NUMBERS = /-?\d+(\.\d+)?(e[+-]?\d+)?/gi;
const STRINGS = /"(?:[^"\\]|\\.)*"/g;
const LONGEST = 80;

/**
 * Return the number of a text; raise an error that names `what` if it is none.
 *
 * @param {string} what
 * @param {string} text
 * @returns {number}
 */
export function decimal(what, text) {
  const trimmed = text.trim();
  if (!DECIMAL.test(trimmed)) throw new Error(`${what}: expected a number, such as 1.5, got ${shown(text)}`);
  check(what, trimmed);
  return Number(trimmed);
}

/**
 * Return the value of a text in JSON; raise an error that names `what` if it is none, or has a number that is not kept.
 *
 * @param {string} what
 * @param {string} text
 * @param {string} [example]
 * @returns {any}
 */
export function json(what, text, example = "[1, 2.5] or 3") {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    const hint = /\b(NaN|Infinity)\b/.test(text.replaceAll(STRINGS, "")) ? ' (write "NaN" and "Infinity" in quotes)' : "";
    throw new Error(`${what}: expected JSON, such as ${example}, got ${shown(text)}${hint}`);
  }
  for (const [literal] of text.replaceAll(STRINGS, '""').matchAll(NUMBERS)) check(what, literal);
  return value;
}

/**
 * Return a text as an error shows it.
 *
 * @param {string} text
 */
export function shown(text) {
  const trimmed = text.trim();
  if (!trimmed) return "nothing";
  return trimmed.length > LONGEST ? `${trimmed.slice(0, LONGEST - 1)}…` : trimmed;
}

/**
 * Raise an error for a number that JavaScript would replace by another.
 *
 * @param {string} what
 * @param {string} literal
 */
function check(what, literal) {
  const value = Number(literal);
  const isLost = !Number.isFinite(value) || (value === 0 && /[1-9]/.test(literal.replace(/e.*/i, "")));
  if (isLost) throw new Error(`${what}: expected 0 or a number between 5e-324 and 1.8e308 in size, got ${shown(literal)}`);
  if (/^[+-]?\d+$/.test(literal) && !Number.isSafeInteger(value) && BigInt(literal.replace("+", "")) !== BigInt(value)) {
    throw new Error(`${what}: expected an integer that float64 has, got ${shown(literal)}`);
  }
}
