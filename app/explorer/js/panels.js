/** The plots of a curve, one below the other: y, and each derivative with the numeric one and a strip of differences. */

import { bars, barsOfClaim, stateAt, verdictOn } from "./agreement.js";
import { colours, translucent } from "./colours.js";
import { fill, make } from "./dom.js";
import { short } from "./numbers.js";
import { powerText, rangeOf, wideTicks, widthOf } from "./scales.js";

/** @typedef {import("./types.d.ts").Curve} Curve */
/** @typedef {import("./types.d.ts").Level} Level */
/** @typedef {import("./types.d.ts").Column} Column */

const HEIGHTS = { panel: 172, strip: 74 };
const AXIS_WIDTH = 66;
// A difference of more bars than this is drawn at the edge of the strip.
const MOST_BARS = 1e9;
// How much of the width a tangent covers to each side.
const TANGENT = 0.14;

/** The panels of one curve. `moved` gets the index of the cursor, `zoomed` the range that was dragged. */
export class Panels {
  /**
   * @param {HTMLElement} root
   * @param {{ moved: (i: number) => void, zoomed: (from: number, to: number) => void }} listeners
   */
  constructor(root, listeners) {
    this.root = root;
    this.listeners = listeners;
    /** @type {uPlot[]} */
    this.plots = [];
    /** @type {Curve | null} */
    this.curve = null;
    this.scale = "auto";
    this.cursor = 0;
    this.isMoving = false;
    new ResizeObserver(() => this.#resize()).observe(root);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
  }

  /**
   * Show a curve.
   *
   * @param {Curve} curve
   * @param {{ scale: string, from: number, to: number, names: { x: string, y: string } }} options
   */
  show(curve, options) {
    const isSame = this.curve?.x.length === curve.x.length && this.curve.x[0] === curve.x[0];
    this.curve = curve;
    this.options = options;
    if (!isSame || this.cursor >= curve.x.length) this.cursor = Math.floor(curve.x.length * 0.62);
    this.#draw();
  }

  /**
   * Move the cursor to a point of the curve.
   *
   * @param {number} i
   */
  moveTo(i) {
    if (!this.curve) return;
    this.cursor = Math.max(0, Math.min(this.curve.x.length - 1, i));
    this.#place();
    this.listeners.moved(this.cursor);
  }

  #draw() {
    const { curve, options } = this;
    if (!curve || !options) return;
    for (const plot of this.plots) plot.destroy();
    this.plots = [];
    fill(this.root);
    const paint = colours();
    this.#panel(options.names.y, "", null, [curve.y], paint, "y");
    curve.levels.forEach((level, i) => {
      const verdict = verdictOn(level);
      const edges = [shifted(level, 1), shifted(level, -1)];
      const colour = i ? "second" : "first";
      this.#panel(level.name, verdict.sentence, level, [level.analytic, level.numeric, ...edges, level.claim], paint, colour);
      this.#strip(level, paint);
    });
    this.#place();
    this.listeners.moved(this.cursor);
  }

  /**
   * @param {string} name
   * @param {string} sentence
   * @param {Level | null} level
   * @param {Column[]} columns
   * @param {Record<string, string>} paint
   * @param {string} colour
   */
  #panel(name, sentence, level, columns, paint, colour) {
    const state = level ? verdictOn(level).state : "unknown";
    const title = make(
      "div",
      { class: "panel-title" },
      make("span", { class: `panel-name ${colour}` }, name),
      sentence && make("span", { class: `badge ${state}` }, sentence),
    );
    this.root.append(title);
    const { isWide, linear } = widthOf([columns[0] ?? [], columns[1] ?? [], columns[4] ?? []], this.options?.scale ?? "auto");
    const ink = paint[colour] ?? "";
    const spanGaps = this.curve?.isSparse === true;
    const series = level
      ? [
          { stroke: ink, width: 2 },
          { stroke: translucent(paint["numeric"] ?? "", 0.55), width: 7, spanGaps },
          { stroke: "transparent", width: 0, spanGaps },
          { stroke: "transparent", width: 0, spanGaps },
          { stroke: paint["claim"] ?? "", width: 1.5, dash: [7, 5], spanGaps, show: level.kind !== "derivative" },
        ]
      : [{ stroke: ink, width: 2 }];
    // The numeric derivative is drawn first, as a halo of the analytic one.
    const order = level ? [1, 2, 3, 0, 4] : [0];
    const bands = level ? [{ series: /** @type {[number, number]} */ ([2, 3]), fill: paint["band"] ?? "" }] : [];
    this.#plot(
      HEIGHTS.panel,
      order.map((i) => series[i] ?? {}),
      order.map((i) => columns[i] ?? []),
      { isWide, linear, bands, paint, level, hasX: false },
    );
  }

  /**
   * @param {Level} level
   * @param {Record<string, string>} paint
   */
  #strip(level, paint) {
    const limited = (/** @type {number | null} */ r) => (r === null ? null : Math.max(-MOST_BARS, Math.min(MOST_BARS, r)));
    const own = level.analytic.map((_, i) => limited(bars(level, i)));
    const claim = level.analytic.map((_, i) => limited(barsOfClaim(level, i)));
    const spanGaps = this.curve?.isSparse === true;
    this.root.append(make("div", { class: "strip-title" }, `(${level.name} − numeric) / error bar`));
    this.#plot(
      HEIGHTS.strip,
      [
        { stroke: paint["numeric"] ?? "", width: 1.5, fill: paint["band"] ?? "", fillTo: 0, spanGaps },
        { stroke: paint["claim"] ?? "", width: 1.5, dash: [7, 5], spanGaps, show: level.kind !== "derivative" },
      ],
      [own, claim],
      { isWide: true, linear: 1, bands: [], paint, level, hasX: level === this.curve?.levels.at(-1), isStrip: true },
    );
  }

  /**
   * @param {number} height
   * @param {uPlot.Series[]} series
   * @param {Column[]} columns
   * @param {{ isWide: boolean, linear: number, bands: uPlot.Band[], paint: Record<string, string>, level: Level | null, hasX: boolean, isStrip?: boolean }} look
   */
  #plot(height, series, columns, look) {
    const { curve, options } = this;
    if (!curve || !options) return;
    const { paint } = look;
    const font = "11px system-ui, sans-serif";
    const axis = { stroke: paint["muted"] ?? "", grid: { stroke: paint["grid"] ?? "", width: 1 }, ticks: { show: false }, font };
    /** @type {uPlot.Options} */
    const shape = {
      width: this.#width(),
      height: height + (look.hasX ? 34 : 0),
      padding: [6, 10, look.hasX ? 0 : 4, 0],
      pxAlign: 0,
      legend: { show: false },
      series: [{}, ...series.map((each) => ({ points: { show: false }, pxAlign: 0, ...each }))],
      bands: look.bands,
      scales: {
        x: { time: false, range: [options.from, options.to] },
        y: {
          distr: look.isWide ? 4 : 1,
          asinh: look.linear,
          range: (_, least, most) =>
            look.isStrip ? stripRange(least, most) : rangeOf(least, most, look.isWide, look.linear),
        },
      },
      axes: [
        { ...axis, size: look.hasX ? 34 : 0, values: look.hasX ? (_, ticks) => ticks.map((tick) => short(tick, 4)) : () => [] },
        { ...axis, size: AXIS_WIDTH, ...(look.isWide ? wide(look.linear, look.isStrip ? 1 : 3) : { space: 32, values: (_, ticks) => ticks.map((tick) => short(tick, 4)) }) },
      ],
      cursor: {
        sync: { key: "explorer", setSeries: false },
        drag: { x: true, y: false, setScale: false },
        points: { size: 7 },
      },
      hooks: {
        drawClear: [(plot) => this.#shade(plot, look)],
        draw: [(plot) => this.#mark(plot, look)],
        setCursor: [(plot) => this.#follow(plot)],
        setSelect: [(plot) => this.#select(plot)],
      },
    };
    const host = make("div", { class: look.isStrip ? "plot strip" : "plot" });
    this.root.append(host);
    this.plots.push(new uPlot(shape, /** @type {uPlot.AlignedData} */ ([curve.x, ...columns]), host));
  }

  /**
   * Shade where the derivative is wrong, or only declared.
   *
   * @param {uPlot} plot
   * @param {{ level: Level | null, paint: Record<string, string> }} look
   */
  #shade(plot, { level, paint }) {
    const { curve } = this;
    if (!level || !curve) return;
    const { ctx, bbox } = plot;
    ctx.save();
    for (const { state, from, to } of runs(curve, level)) {
      const left = Math.max(bbox.left, plot.valToPos(from, "x", true));
      const right = Math.min(bbox.left + bbox.width, plot.valToPos(to, "x", true));
      ctx.fillStyle = translucent(paint[state] ?? "", 0.09);
      ctx.fillRect(left, bbox.top, right - left, bbox.height);
    }
    ctx.restore();
  }

  /**
   * Mark kinks and poles, the bars of a strip, and the tangent at the cursor.
   *
   * @param {uPlot} plot
   * @param {{ level: Level | null, paint: Record<string, string>, isStrip?: boolean }} look
   */
  #mark(plot, { level, paint, isStrip }) {
    const { curve } = this;
    if (!curve) return;
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    const vertical = (/** @type {number} */ x, /** @type {string} */ colour, /** @type {number[]} */ dash) => {
      const at = plot.valToPos(x, "x", true);
      stroke(ctx, [[at, bbox.top], [at, bbox.top + bbox.height]], colour, devicePixelRatio, dash);
    };
    for (const kink of curve.kinks) vertical(kink, paint["muted"] ?? "", [3, 3]);
    for (const pole of curve.poles) vertical(pole, paint["wrong"] ?? "", [8, 3]);
    if (level && !isStrip) {
      level.status.forEach((status, i) => {
        if (status === "kink" || status === "jump") {
          dot(ctx, plot.valToPos(curve.x[i] ?? 0, "x", true), bbox.top + bbox.height - 6 * devicePixelRatio, paint["muted"] ?? "");
        }
      });
    }
    for (const one of isStrip ? [1, -1] : []) {
      const at = plot.valToPos(one, "y", true);
      stroke(ctx, [[bbox.left, at], [bbox.left + bbox.width, at]], paint["muted"] ?? "", devicePixelRatio, [2, 3]);
    }
    if (!isStrip) this.#tangent(plot, paint);
    ctx.restore();
  }

  /**
   * @param {uPlot} plot
   * @param {Record<string, string>} paint
   */
  #tangent(plot, paint) {
    const { curve, options } = this;
    const at = this.plots.filter((_, k) => k === 0 || k % 2 === 1).indexOf(plot);
    const slope = curve?.levels[at]?.analytic[this.cursor];
    const values = at === 0 ? curve?.y : curve?.levels[at - 1]?.analytic;
    const y = values?.[this.cursor];
    if (!curve || !options || slope === null || slope === undefined || y === null || y === undefined || at < 0) return;
    const x = curve.x[this.cursor] ?? 0;
    const reach = TANGENT * (options.to - options.from);
    const points = Array.from({ length: 33 }, (_, k) => {
      const step = reach * (k / 16 - 1);
      return /** @type {[number, number]} */ ([plot.valToPos(x + step, "x", true), plot.valToPos(y + slope * step, "y", true)]);
    });
    stroke(plot.ctx, points, paint["ink"] ?? "", 1.25 * devicePixelRatio, [5, 4]);
    dot(plot.ctx, plot.valToPos(x, "x", true), plot.valToPos(y, "y", true), paint["ink"] ?? "");
  }

  /** @param {uPlot} plot */
  #follow(plot) {
    const { idx } = plot.cursor;
    if (this.isMoving || idx === null || idx === undefined || idx === this.cursor || !plot.cursor.event) return;
    this.cursor = idx;
    this.#redraw();
    this.listeners.moved(idx);
  }

  /** Show the cursor of each plot at its place. */
  #place() {
    const x = this.curve?.x[this.cursor];
    if (x === undefined) return;
    this.isMoving = true;
    for (const plot of this.plots) plot.setCursor({ left: plot.valToPos(x, "x"), top: -1 }, false);
    this.isMoving = false;
    this.#redraw();
  }

  #redraw() {
    for (const plot of this.plots) plot.redraw(false);
  }

  /** @param {uPlot} plot */
  #select(plot) {
    const { left, width } = plot.select;
    if (width < 4) return;
    const [from, to] = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.listeners.zoomed(from, to);
  }

  #width() {
    return Math.max(240, this.root.clientWidth);
  }

  #resize() {
    const width = this.#width();
    for (const plot of this.plots) if (plot.width !== width) plot.setSize({ width, height: plot.height });
    this.#place();
  }
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
 * Return the ticks of an arcsinh axis.
 *
 * @param {number} linear
 * @param {number} count
 * @returns {Partial<uPlot.Axis>}
 */
function wide(linear, count) {
  return {
    splits: (_, __, least, most) => wideTicks(least, most, linear, count),
    filter: (_, splits) => splits,
    values: (_, ticks) => ticks.map(powerText),
  };
}

/**
 * Return an edge of the band: the numeric derivative, plus or minus its error bar.
 *
 * @param {Level} level
 * @param {1 | -1} side
 * @returns {Column}
 */
function shifted(level, side) {
  return level.numeric.map((value, i) => {
    const bar = level.bar[i];
    return value === null || bar === null || bar === undefined ? null : value + side * bar;
  });
}

/**
 * Return the range of a strip, which is symmetric.
 *
 * @param {number | null} least
 * @param {number | null} most
 * @returns {[number, number]}
 */
function stripRange(least, most) {
  const size = 1.6 * Math.max(2, Math.abs(least ?? 0), Math.abs(most ?? 0));
  return [-size, size];
}

/**
 * @param {CanvasRenderingContext2D} ctx
 * @param {[number, number][]} points
 * @param {string} colour
 * @param {number} width
 * @param {number[]} dash
 */
function stroke(ctx, points, colour, width, dash) {
  ctx.beginPath();
  points.forEach(([x, y], k) => (k ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
  ctx.strokeStyle = colour;
  ctx.lineWidth = width;
  ctx.setLineDash(dash.map((each) => each * devicePixelRatio));
  ctx.stroke();
  ctx.setLineDash([]);
}

/**
 * @param {CanvasRenderingContext2D} ctx
 * @param {number} x
 * @param {number} y
 * @param {string} colour
 */
function dot(ctx, x, y, colour) {
  ctx.beginPath();
  ctx.arc(x, y, 3.5 * devicePixelRatio, 0, 2 * Math.PI);
  ctx.fillStyle = colour;
  ctx.fill();
}
