/** The curves of an elementwise op with one float input: all points in one request for each thing that is shown. */

import { levelOf } from "./agreement.js";
import { numbers, plotted, spread } from "./numbers.js";

/** @typedef {import("./types.d.ts").Contract} Contract */
/** @typedef {import("./types.d.ts").Curve} Curve */
/** @typedef {{ from: number, to: number, cotangent: number, dtype: string, mode: string, attrs: Record<string, unknown> }} Span */

const POINTS = 401;

/**
 * Return whether an op has curves of its own: it is elementwise, with one input and one output.
 *
 * @param {Contract} contract
 * @returns {boolean}
 */
export function hasCurve(contract) {
  const isAlone = contract.inputs.length === 1 && contract.outputs.length === 1;
  return contract.batching === "elementwise" && isAlone && contract.inputs[0]?.differentiable === true;
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
  const x = [...new Set([...spread(span.from, span.to, POINTS), ...kinks])].sort((a, b) => a - b);
  const path = `/v1/ops/${encodeURIComponent(contract.name)}`;
  const cotangents = { [output.name]: x.map(() => span.cotangent) };
  const body = { inputs: { [input.name]: x }, attrs: span.attrs, dtype: span.dtype, cotangents };
  const mode = span.mode ? { mode: span.mode } : {};
  const { claim } = contract;
  const order = claim.second ? 2 : 1;
  const answer = await service.post(`${path}/gradients`, { ...body, ...mode, order }, signal);
  const kinds = [claim.first, claim.second];
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
  await Promise.all(
    curve.levels.flatMap((level, i) => {
      const request = (/** @type {boolean} */ isClaim) =>
        service.post(`${path}/numeric`, { ...body, order: i + 1, ...(isClaim ? { claim: true } : {}) }, signal);
      const own = request(false).then((found) => {
        const { derivative, error_bar: bar, status } = found.derivatives[input.name];
        Object.assign(level, { numeric: numbers(derivative).map(plotted), bar: numbers(bar).map(plotted), status });
      });
      const claimed =
        level.kind === "derivative"
          ? null
          : request(true).then((found) => {
              const { derivative, error_bar: bar, status } = found.derivatives[input.name];
              Object.assign(level, {
                claim: numbers(derivative).map(plotted),
                claimBar: numbers(bar).map(plotted),
                claimStatus: status,
              });
            });
      return [own, claimed];
    }),
  );
  show(curve);
}
