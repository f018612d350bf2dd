/** The curves of an elementwise op with one float input: all points in one request for each thing that is shown. */

import { levelOf } from "./agreement.js";
import { numbers, plotted, spread } from "./numbers.js";

/** @typedef {import("./types.d.ts").Contract} Contract */
/** @typedef {import("./types.d.ts").Curve} Curve */
/** @typedef {{ from: number, to: number, pin: number | null, cotangent: number, dtype: string, mode: string, attrs: Record<string, unknown> }} Span */

const POINTS = 401;
// A domain wider than this is not shown as a whole at first, but from -BEND to BEND.
const WIDE = 40;
const BEND = 8;

/**
 * Return whether an op can be plotted as a curve: it is elementwise, with one input and one output.
 *
 * @param {Contract} contract
 * @returns {boolean}
 */
export function hasCurve(contract) {
  const isAlone = contract.inputs.length === 1 && contract.outputs.length === 1;
  return contract.batching === "elementwise" && isAlone && contract.inputs[0]?.differentiable === true;
}

/**
 * Return the range that is shown first: the domain of the input, or the part of a large one where functions bend.
 *
 * @param {import("./types.d.ts").Slot | undefined} input
 * @returns {[number, number]}
 */
export function firstRange(input) {
  const [low, high] = input?.domain ?? [-3, 3];
  const isWide = high - low > WIDE && low < BEND && high > -BEND;
  return isWide ? [Math.max(low, -BEND), Math.min(high, BEND)] : [low, high];
}

/**
 * Compute the curves, and show them each time that more of them is known.
 *
 * @param {import("./service.js").Service} service
 * @param {Contract} contract
 * @param {Span} span
 * @param {AbortSignal} signal
 * @param {(curve: Curve) => void} show
 * @returns {Promise<void>}
 */
export async function drawCurve(service, contract, span, signal, show) {
  const [input] = contract.inputs;
  const [output] = contract.outputs;
  if (!input || !output || !contract.claim) return;
  const kinks = input.kinks.filter((kink) => kink > span.from && kink < span.to);
  const poles = input.poles.filter((pole) => pole > span.from && pole < span.to);
  const pins = span.pin !== null && span.pin > span.from && span.pin < span.to ? [span.pin] : [];
  const x = [...new Set([...spread(span.from, span.to, POINTS), ...kinks, ...pins])].sort((a, b) => a - b);
  const path = `/v1/ops/${encodeURIComponent(contract.name)}`;
  const cotangents = { [output.name]: x.map(() => span.cotangent) };
  const body = { inputs: { [input.name]: x }, attrs: span.attrs, dtype: span.dtype, cotangents };
  const mode = span.mode ? { mode: span.mode } : {};
  const { claim } = contract;
  const order = claim.second ? 2 : 1;
  const kinds = [claim.first, claim.second];
  const numeric = (/** @type {number} */ of, /** @type {boolean} */ isClaim) =>
    service.post(`${path}/numeric`, { ...body, order: of, ...(isClaim ? { claim: true } : {}) }, signal);
  // All requests are on their way at once; what the op returns is shown as soon as it is there.
  const parts = kinds.slice(0, order).map((kind, i) => ({
    own: settled(numeric(i + 1, false)),
    claimed: kind === "derivative" ? null : settled(numeric(i + 1, true)),
  }));
  const answer = await service.post(`${path}/gradients`, { ...body, ...mode, order }, signal);
  /** @type {Curve} */
  const curve = {
    x,
    y: numbers(answer.outputs[output.name].data).map(plotted),
    levels: answer.gradients.map((/** @type {any} */ gradient, /** @type {number} */ i) =>
      levelOf(
        i ? "f″" : "f′",
        i ? "f′" : "f",
        kinds[i] ?? "derivative",
        gradient[input.name] ? numbers(gradient[input.name].data).map(plotted) : x.map(() => null),
      ),
    ),
    kinks,
    poles,
    isSparse: false,
  };
  show(curve);
  for (const [i, level] of curve.levels.entries()) {
    const [own, claimed] = await Promise.all([parts[i]?.own, parts[i]?.claimed]);
    Object.assign(level, columns(own, input.name));
    if (claimed) {
      const { numeric: claimedSlope, bar: claimBar, status: claimStatus } = columns(claimed, input.name);
      Object.assign(level, { claim: claimedSlope, claimBar, claimStatus });
    }
  }
  show(curve);
}

/**
 * Return the numbers of an answer of `numeric`, or raise its error.
 *
 * @param {any} answer
 * @param {string} input
 */
function columns(answer, input) {
  if (answer instanceof Error) throw answer;
  const { derivative, error_bar: bar, status } = answer.derivatives[input];
  return { numeric: numbers(derivative).map(plotted), bar: numbers(bar).map(plotted), status };
}

/**
 * Return a promise of the answer or of its error, which is raised where it is used.
 *
 * @param {Promise<any>} promise
 * @returns {Promise<any>}
 */
function settled(promise) {
  return promise.catch((error) => error);
}
