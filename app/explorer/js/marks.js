/** What is drawn into a plot beside its curves: shades, kinks, poles, bars and tangents. */

import { stateAt } from "./agreement.js";
import { translucent } from "./colours.js";

/** @typedef {import("./types.d.ts").Curve} Curve */
/** @typedef {import("./types.d.ts").Level} Level */
/** @typedef {Record<string, string>} Paint */

const SHADE = 0.09;
// The points of a tangent, which is bent where the scale is.
const BENDS = 16;

/**
 * Draw inside the area of a plot alone.
 *
 * @param {uPlot} plot
 * @param {() => void} draw
 */
export function clipped({ ctx, bbox }, draw) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  draw();
  ctx.restore();
}

/**
 * Shade where a derivative is wrong, or only declared.
 *
 * @param {uPlot} plot
 * @param {Curve} curve
 * @param {Level} level
 * @param {Paint} paint
 */
export function shade(plot, curve, level, paint) {
  const { ctx, bbox } = plot;
  clipped(plot, () => {
    for (const { state, from, to } of runs(curve, level)) {
      const left = plot.valToPos(from, "x", true);
      ctx.fillStyle = translucent(paint[state] ?? "", SHADE);
      ctx.fillRect(left, bbox.top, plot.valToPos(to, "x", true) - left, bbox.height);
    }
  });
}

/**
 * Return the parts of a curve where a derivative is wrong, or only declared.
 *
 * @param {Curve} curve
 * @param {Level} level
 * @returns {{ state: string, from: number, to: number }[]}
 */
function runs(curve, level) {
  /** @type {{ state: string, from: number, to: number }[]} */
  const found = [];
  const reach = curve.isSparse ? 2 : 1;
  for (let i = 0; i < curve.x.length; i += reach) {
    const x = curve.x[i] ?? 0;
    const state = stateAt(level, i);
    const from = ((curve.x[i - reach] ?? x) + x) / 2;
    const to = ((curve.x[i + reach] ?? x) + x) / 2;
    const last = found.at(-1);
    if (last?.state === state) last.to = to;
    else found.push({ state, from, to });
  }
  return found.filter(({ state }) => state === "wrong" || state === "declared");
}

/**
 * Mark declared kinks and poles, and the kinks and jumps that the numeric derivative of a level has found.
 *
 * @param {uPlot} plot
 * @param {Curve} curve
 * @param {Level | null} level
 * @param {Paint} paint
 */
export function markPlaces(plot, curve, level, paint) {
  const { bbox } = plot;
  const vertical = (/** @type {number} */ x, /** @type {string} */ colour, /** @type {number[]} */ dash) => {
    const at = plot.valToPos(x, "x", true);
    stroke(plot, [[at, bbox.top], [at, bbox.top + bbox.height]], colour, 1, dash);
  };
  for (const kink of curve.kinks) vertical(kink, paint["muted"] ?? "", [3, 3]);
  for (const pole of curve.poles) vertical(pole, paint["wrong"] ?? "", [8, 3]);
  level?.status.forEach((status, i) => {
    if (status !== "kink" && status !== "jump") return;
    dot(plot, plot.valToPos(curve.x[i] ?? 0, "x", true), bbox.top + bbox.height - 6 * devicePixelRatio, paint["muted"] ?? "");
  });
}

/**
 * Draw the lines at plus and minus one error bar.
 *
 * @param {uPlot} plot
 * @param {Paint} paint
 */
export function markBars(plot, paint) {
  const { bbox } = plot;
  for (const one of [1, -1]) {
    const at = plot.valToPos(one, "y", true);
    stroke(plot, [[bbox.left, at], [bbox.left + bbox.width, at]], paint["muted"] ?? "", 1, [2, 3]);
  }
}

/**
 * Draw a tangent and its point.
 *
 * @param {uPlot} plot
 * @param {{ x: number, y: number, slope: number, reach: number }} at
 * @param {Paint} paint
 */
export function drawTangent(plot, { x, y, slope, reach }, paint) {
  const points = Array.from({ length: 2 * BENDS + 1 }, (_, k) => {
    const step = reach * (k / BENDS - 1);
    return /** @type {[number, number]} */ ([plot.valToPos(x + step, "x", true), plot.valToPos(y + slope * step, "y", true)]);
  });
  stroke(plot, points, paint["ink"] ?? "", 1.25, [5, 4]);
  dot(plot, plot.valToPos(x, "x", true), plot.valToPos(y, "y", true), paint["ink"] ?? "");
}

/**
 * @param {uPlot} plot
 * @param {[number, number][]} points
 * @param {string} colour
 * @param {number} width
 * @param {number[]} dash
 */
function stroke({ ctx }, points, colour, width, dash) {
  ctx.beginPath();
  points.forEach(([x, y], k) => (k ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
  ctx.strokeStyle = colour;
  ctx.lineWidth = width * devicePixelRatio;
  ctx.setLineDash(dash.map((each) => each * devicePixelRatio));
  ctx.stroke();
  ctx.setLineDash([]);
}

/**
 * @param {uPlot} plot
 * @param {number} x
 * @param {number} y
 * @param {string} colour
 */
function dot({ ctx }, x, y, colour) {
  ctx.beginPath();
  ctx.arc(x, y, 3.5 * devicePixelRatio, 0, 2 * Math.PI);
  ctx.fillStyle = colour;
  ctx.fill();
}
