/** The curve of an op with any inputs along a line: φ(t) = ⟨c, f(x₀ + t v)⟩, a few requests for each t. */

import { levelOf } from "./agreement.js";
import { Away, ServiceError } from "./service.js";
import { generator, isComplex, nest, number, numbers, plotted, shapeOf, spread } from "./numbers.js";

/** @typedef {import("./types.d.ts").Contract} Contract */
/** @typedef {import("./types.d.ts").Curve} Curve */
/** @typedef {Record<string, unknown>} Tensors */
/**
 * @typedef {object} Line
 * @property {Tensors} at the inputs x₀
 * @property {Tensors} direction v, by differentiable input
 * @property {Tensors | null} cotangents c, null for those of `weightsOf`
 * @property {number} from the first t
 * @property {number} to the last t
 * @property {string} dtype
 * @property {string} mode
 * @property {Record<string, unknown>} attrs
 */

const POINTS = 61;
const AT_ONCE = 6;
// Every how many points the numeric derivative is computed, which takes dozens of evaluations.
const SPARSE = 2;
// Of an output of more numbers, each request would be long.
const MOST_WEIGHTS = 4096;

/**
 * Return the direction that moves one number of one input, or all float inputs at random.
 *
 * @param {Contract} contract
 * @param {Tensors} at
 * @param {string} dtype
 * @param {{ input: string, index: number } | { seed: number }} which
 * @returns {Tensors}
 */
export function directionOf(contract, at, dtype, which) {
  const live = contract.inputs.filter((slot) => isFloat(slot, dtype) && slot.name in at);
  if ("input" in which) {
    const shape = shapeOf(at[which.input]);
    const flat = numbers(at[which.input]).map((_, i) => Number(i === which.index));
    return { [which.input]: nest(flat, shape) };
  }
  const draw = generator(which.seed);
  /** @type {Tensors} */
  const found = {};
  for (const slot of live) {
    const flat = numbers(at[slot.name]).map(() => Number(draw().toFixed(3)));
    found[slot.name] = nest(flat, shapeOf(at[slot.name]));
  }
  return found;
}

/**
 * Return whether an input is differentiable.
 *
 * @param {import("./types.d.ts").Slot} slot
 * @param {string} dtype
 * @returns {boolean}
 */
export function isFloat(slot, dtype) {
  const own = slot.dtypes.length > 1 ? dtype : (slot.dtypes[0] ?? dtype);
  return slot.differentiable && (own.includes("float") || isComplex(own));
}

/**
 * Compute the curve along a line, and show it each time that more of it is known.
 *
 * @param {import("./service.js").Service} service
 * @param {Contract} contract
 * @param {Line} line
 * @param {AbortSignal} signal
 * @param {(curve: Curve) => void} show
 * @returns {Promise<void>}
 */
export async function drawSlice(service, contract, line, signal, show) {
  const { claim } = contract;
  if (!claim) return;
  const t = spread(line.from, line.to, POINTS);
  const kinds = claim.second ? [claim.first, claim.second] : [claim.first];
  /** @type {Curve} */
  const curve = {
    x: t,
    y: t.map(() => null),
    levels: kinds.map((kind, i) => levelOf(i ? "φ″" : "φ′", i ? "φ′" : "φ", kind, t.map(() => null))),
    kinks: [],
    poles: [],
    isSparse: true,
  };
  const cotangents = line.cotangents ?? (await weightsOf(service, contract, line, signal));
  const work = new LineWork(service, contract, { ...line, cotangents }, signal, curve);
  const indices = t.map((_, i) => i);
  let failure = await attempt(indices, signal, (i) => work.values(i));
  signal.throwIfAborted();
  if (failure instanceof Away) throw failure;
  show(curve);
  if (failure && curve.y.every((y) => y === null)) throw failure;
  const some = indices.filter((i) => i % SPARSE === 0);
  for (const [order, kind] of kinds.entries()) {
    // A derived op has no claim.
    for (const isClaim of kind === "derivative" || contract.of ? [false] : [false, true])
      failure = (await attempt(some, signal, (i) => work.numeric(i, order, isClaim))) ?? failure;
  }
  signal.throwIfAborted();
  show(curve);
  if (failure instanceof Away) throw failure;
  if (failure && !curve.levels.some((level) => level.status.includes("ok"))) throw failure;
}

/**
 * Return the cotangents 1, 1/2, 1/3 and so on of the first float output: under ones, the sum of a softmax is 1 and moves
 * by rounding alone. For outputs of many numbers, or at a point that the op refuses, return `null` for ones.
 *
 * @param {import("./service.js").Service} service
 * @param {Contract} contract
 * @param {Line} line
 * @param {AbortSignal} signal
 * @returns {Promise<Tensors | null>}
 */
async function weightsOf(service, contract, line, signal) {
  const body = { inputs: line.at, attrs: line.attrs, dtype: line.dtype, ...(line.mode ? { mode: line.mode } : {}) };
  try {
    const { outputs } = await service.post(`/v1/ops/${encodeURIComponent(contract.name)}/forward`, body, signal);
    const [found] = Object.entries(outputs).filter(([, tensor]) => tensor && (tensor.dtype.includes("float") || isComplex(tensor.dtype)));
    if (!found) return null;
    const [name, { data, dtype }] = found;
    const flat = numbers(data);
    if (flat.length > MOST_WEIGHTS) return null;
    const weights = flat.map((_, k) => (isComplex(dtype) ? (k % 2 ? 0 : 1 / (k / 2 + 1)) : 1 / (k + 1)));
    return { [name]: nest(weights, shapeOf(data)) };
  } catch (error) {
    if (signal.aborted || error instanceof Away) throw error;
    return null;
  }
}

class LineWork {
  /**
   * @param {import("./service.js").Service} service
   * @param {Contract} contract
   * @param {Line} line
   * @param {AbortSignal} signal
   * @param {Curve} curve
   */
  constructor(service, contract, line, signal, curve) {
    this.service = service;
    this.path = `/v1/ops/${encodeURIComponent(contract.name)}`;
    this.line = line;
    this.signal = signal;
    this.curve = curve;
  }

  /**
   * Compute φ, φ′ and φ″ at one t.
   *
   * @param {number} i
   */
  async values(i) {
    const { line, curve, path } = this;
    const mode = line.mode ? { mode: line.mode } : {};
    const body = { ...this.#body(i), ...mode };
    const first = await this.service.post(`${path}/vjp`, { ...body, outputs: true }, this.signal);
    const y = valueOf(first.outputs, line.cotangents);
    curve.y[i] = plotted(y);
    this.#set(0, i, first.gradients);
    if (curve.levels.length > 1) {
      const second = await this.service.post(`${path}/hvp`, { ...body, vectors: line.direction }, this.signal);
      this.#set(1, i, second.products);
    }
  }

  /**
   * Compute a numeric derivative along the line at one t.
   *
   * @param {number} i
   * @param {number} order
   * @param {boolean} isClaim
   */
  async numeric(i, order, isClaim) {
    const body = { ...this.#body(i), order: order + 1, tangents: this.line.direction, ...(isClaim ? { claim: true } : {}) };
    const { along } = await this.service.post(`${this.path}/numeric`, body, this.signal);
    const level = this.curve.levels[order];
    if (!level) return;
    (isClaim ? level.claim : level.numeric)[i] = plotted(number(along.derivative));
    (isClaim ? level.claimBar : level.bar)[i] = plotted(number(along.error_bar));
    (isClaim ? level.claimStatus : level.status)[i] = along.status;
  }

  /**
   * @param {number} order
   * @param {number} i
   * @param {Record<string, any>} gradients
   */
  #set(order, i, gradients) {
    const slope = slopeAlong(this.line.direction, gradients);
    const level = this.curve.levels[order];
    if (level) level.analytic[i] = plotted(slope);
  }

  /** @param {number} i */
  #body(i) {
    const { line } = this;
    return { inputs: pointOn(line, this.curve.x[i] ?? 0), attrs: line.attrs, dtype: line.dtype, ...(line.cotangents ? { cotangents: line.cotangents } : {}) };
  }
}

/**
 * Return ⟨c, y⟩ of the float and complex outputs, which for complex ones is the sum over their parts.
 *
 * @param {Record<string, any>} outputs
 * @param {Tensors | null} cotangents null for ones
 * @returns {number}
 */
export function valueOf(outputs, cotangents) {
  let sum = 0;
  for (const [name, tensor] of Object.entries(outputs)) {
    // Outputs of integers have no cotangent.
    const hasPairs = isComplex(tensor.dtype);
    if (!tensor.dtype.includes("float") && !hasPairs) continue;
    const values = numbers(tensor.data);
    const ones = values.map((_, k) => (hasPairs && k % 2 ? 0 : 1));
    const c = cotangents ? (name in cotangents ? numbers(cotangents[name]) : []) : ones;
    c.forEach((each, k) => (sum += each * (values[k] ?? 0)));
  }
  return sum;
}

/**
 * Return ⟨dx, v⟩.
 *
 * @param {Tensors} direction
 * @param {Record<string, any>} gradients
 * @returns {number}
 */
export function slopeAlong(direction, gradients) {
  let slope = 0;
  for (const [name, v] of Object.entries(direction)) {
    const gradient = gradients[name];
    const d = numbers(v);
    if (gradient) numbers(gradient.data).forEach((each, k) => (slope += d[k] ? each * (d[k] ?? 0) : 0));
  }
  return slope;
}

/**
 * Return the inputs x₀ + t v.
 *
 * @param {{ at: Tensors, direction: Tensors }} line
 * @param {number} t
 * @returns {Tensors}
 */
export function pointOn(line, t) {
  const moved = { ...line.at };
  for (const [name, v] of Object.entries(line.direction)) {
    const d = numbers(v);
    moved[name] = nest(numbers(line.at[name]).map((x, k) => x + t * (d[k] ?? 0)), shapeOf(line.at[name]));
  }
  return moved;
}

/**
 * Run a job for each index, a few at a time, and return the first error, `null` if there is none. If the service refuses
 * the first, the middle and the last job, or is away, the others do not run: they would fail too. A busy service, or one
 * that takes too long, may answer the others.
 *
 * @param {readonly number[]} indices
 * @param {AbortSignal} signal
 * @param {(i: number) => Promise<void>} run
 * @returns {Promise<unknown>}
 */
async function attempt(indices, signal, run) {
  /** @type {unknown[]} */
  const failures = [];
  const some = async (/** @type {readonly (number | undefined)[]} */ chosen) => {
    const left = chosen.values();
    const worker = async () => {
      for (const i of left) {
        if (i === undefined) continue;
        await run(i).catch((error) => {
          if (signal.aborted) throw error;
          failures.push(error);
        });
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
  };
  const probes = [indices[0], indices[indices.length >> 1], indices.at(-1)];
  await some(probes);
  if (failures.filter((error) => !(error instanceof ServiceError && error.mayPass)).length < probes.length) await some(indices.filter((i) => !probes.includes(i)));
  return failures[0] ?? null;
}
