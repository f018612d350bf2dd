/** The numbers at the cursor. */

import { bars, stateAt } from "./agreement.js";
import { fill, make } from "./dom.js";
import { short } from "./numbers.js";

/** @typedef {import("./types.d.ts").Curve} Curve */

const WORDS = {
  right: "agrees",
  wrong: "wrong",
  declared: "as declared",
  unknown: "not known",
};

/**
 * Show the numbers of a curve at a point.
 *
 * @param {HTMLElement} root
 * @param {Curve} curve
 * @param {number} i
 * @param {{ x: string, y: string }} names
 */
export function readOut(root, curve, i, names) {
  const hasClaim = curve.levels.some((level) => level.kind !== "derivative");
  const rows = curve.levels.map((level) => {
    const state = stateAt(level, i);
    const status = level.status[i] ?? "";
    const isKnown = status === "ok" || level.numeric[i] !== null;
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, level.name),
      make("td", { "data-label": "the op's" }, short(level.analytic[i], 8)),
      make("td", { "data-label": "numeric ± bar" }, isKnown ? `${short(level.numeric[i], 8)} ± ${short(level.bar[i], 2)}` : status || "…"),
      hasClaim && make("td", { "data-label": "claimed" }, level.kind === "derivative" ? "the derivative" : short(level.claim[i], 8)),
      make("td", { "data-label": "difference / bar" }, short(bars(level, i), 3)),
      make("td", { class: "state" }, make("span", { class: `badge ${state}` }, status && status !== "ok" ? status : WORDS[state])),
    );
  });
  fill(
    root,
    make(
      "table",
      { class: "readout" },
      make("caption", {}, `At ${names.x} = ${short(curve.x[i], 8)}: ${names.y} = ${short(curve.y[i], 8)}`),
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          make("th", { scope: "col" }, make("span", { class: "hidden" }, "derivative")),
          make("th", { scope: "col" }, "the op's"),
          make("th", { scope: "col" }, "numeric ± bar"),
          hasClaim && make("th", { scope: "col" }, "claimed"),
          make("th", { scope: "col" }, "difference / bar"),
          make("th", { scope: "col" }, make("span", { class: "hidden" }, "verdict")),
        ),
      ),
      make("tbody", {}, rows),
    ),
  );
}

/**
 * Return the numbers of a curve at a point as a sentence, for a screen reader.
 *
 * @param {Curve} curve
 * @param {number} i
 * @param {{ x: string, y: string }} names
 * @returns {string}
 */
export function spoken(curve, i, names) {
  const slopes = curve.levels.map((level) => `${level.name} ${short(level.analytic[i], 4)}, ${WORDS[stateAt(level, i)]}`);
  return [`${names.x} ${short(curve.x[i], 4)}`, `${names.y} ${short(curve.y[i], 4)}`, ...slopes].join("; ");
}
