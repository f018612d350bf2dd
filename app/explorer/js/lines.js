/** The lines of a panel: the op's own derivative, the numeric one with its band, and the claim. */

import { translucent } from "./colours.js";

/** @typedef {import("./types.d.ts").Column} Column */
/** @typedef {import("./types.d.ts").Level} Level */

/**
 * Return the series of a panel, the order in which they are drawn, and the bands between them.
 *
 * @param {Level | null} level null for the panel of y
 * @param {string} ink
 * @param {Record<string, string>} paint
 * @param {boolean} spanGaps
 * @returns {{ series: uPlot.Series[], order: number[], bands: uPlot.Band[] }}
 */
export function linesOf(level, ink, paint, spanGaps) {
  const own = { stroke: ink, width: 2 };
  if (!level) return { series: [own], order: [0], bands: [] };
  const edge = { stroke: "transparent", width: 0, spanGaps };
  const numeric = { stroke: translucent(paint["numeric"] ?? "", 0.55), width: 7, spanGaps };
  const claim = { stroke: paint["claim"] ?? "", width: 1.5, dash: [7, 5], spanGaps, show: level.kind !== "derivative" };
  // The numeric derivative is drawn first, as a halo of the analytic one.
  return { series: [own, numeric, edge, edge, claim], order: [1, 2, 3, 0, 4], bands: [{ series: [2, 3], fill: paint["band"] ?? "" }] };
}

/**
 * Return the numeric derivative where it is not doubtful, or an edge of its band: plus or minus its error bar.
 *
 * @param {Level} level
 * @param {0 | 1 | -1} side
 * @returns {Column}
 */
export function known(level, side) {
  return level.numeric.map((value, i) => {
    const bar = level.bar[i];
    const isDoubtful = level.status[i] !== "ok" || value === null || bar === null || bar === undefined;
    return isDoubtful ? null : value + side * bar;
  });
}
