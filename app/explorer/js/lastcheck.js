/** The verdicts of checks, and the last one on an op with its age. */

import { make } from "./dom.js";

/** Verdicts from good to bad, each with its sign. */
export const SIGNS = /** @type {Record<string, string>} */ ({ skipped: "·", pass: "✓", inconclusive: "~", error: "!", fail: "✗" });
// The steps of an age: its unit, and up to how many seconds it is used.
const AGES = /** @type {[string, number, number][]} */ ([
  ["min", 60, 3600],
  ["h", 3600, 86400],
  ["days", 86400, Infinity],
]);

/**
 * Return the last verdict on an op, with its age.
 *
 * @param {import("./types.d.ts").LastCheck | undefined} last
 * @returns {(HTMLElement | string)[]}
 */
export function lastCheck(last) {
  if (!last) return ["not checked yet"];
  const { verdict, age_s: age, changed } = last;
  const [unit, length] = AGES.find(([, , most]) => age < most) ?? ["days", 86400, 0];
  const when = age < 60 ? "just now" : `${Math.floor(age / length)} ${unit} ago`;
  const text = changed ? `${when}; ${changed.join(", ")} changed since` : when;
  return [make("span", { class: `badge ${verdict}` }, `${SIGNS[verdict] ?? ""} ${verdict}`), " ", make("span", { class: "muted" }, text)];
}
