/** The plots of a curve, one below the other: y, and each derivative with the numeric one and a strip of differences. */

import { bars, barsOfClaim, verdictOn } from "./agreement.js";
import { colours } from "./colours.js";
import { fill, make } from "./dom.js";
import { known, linesOf } from "./lines.js";
import { clipped, drawTangent, markBars, markPlaces, shade } from "./marks.js";
import { isNumber, nearest, short } from "./numbers.js";
import { endsOf, rangeOf, stripRange, wideAxis, widthOf } from "./scales.js";

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
   * @param {{ scale: string, from: number, to: number, pin: number | null, names: { x: string, y: string } }} options
   *   `pin` is where the cursor is at first
   */
  show(curve, options) {
    const before = this.options?.pin === options.pin ? this.curve?.x[this.cursor] : undefined;
    const x = before ?? options.pin;
    this.curve = curve;
    this.options = options;
    const isInside = x !== null && x >= options.from && x <= options.to;
    this.cursor = this.#known(isInside ? nearest(curve.x, x) : Math.floor(curve.x.length * 0.62));
    this.#draw();
  }

  /**
   * Show the curve on another scale.
   *
   * @param {string} scale
   */
  rescale(scale) {
    if (!this.options) return;
    this.options = { ...this.options, scale };
    this.#draw();
  }

  /**
   * Show another range of the same curve, while a finger moves it.
   *
   * @param {number} from
   * @param {number} to
   */
  slide(from, to) {
    if (!this.options) return;
    this.options = { ...this.options, from, to };
    for (const plot of this.plots) plot.setData(plot.data);
    this.#place();
  }

  /**
   * Move the cursor to a point of the curve.
   *
   * @param {number} i
   */
  moveTo(i) {
    if (!this.curve) return;
    const last = this.curve.x.length - 1;
    this.cursor = Math.max(0, Math.min(last, this.#known(i)));
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
      const edges = [known(level, 0), known(level, 1), known(level, -1)];
      const colour = i ? "second" : "first";
      this.#panel(level.name, verdict.sentence, level, [level.analytic, ...edges, level.claim], paint, colour);
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
    // The band may be as wide as it will: the lines determine what is seen.
    const lines = [columns[0] ?? [], columns[1] ?? [], columns[4] ?? []];
    const { isWide, linear } = widthOf(lines, this.options?.scale ?? "auto");
    const ink = paint[colour] ?? "";
    const spanGaps = this.curve?.isSparse === true;
    const { series, order, bands } = linesOf(level, ink, paint, spanGaps);
    this.#plot(
      HEIGHTS.panel,
      order.map((i) => series[i] ?? {}),
      order.map((i) => columns[i] ?? []),
      { isWide, linear, bands, paint, level, hasX: false, ends: endsOf(lines) },
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
   * @param {{ isWide: boolean, linear: number, bands: uPlot.Band[], paint: Record<string, string>, level: Level | null, hasX: boolean, isStrip?: boolean, ends?: [number, number] }} look
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
        x: { time: false, range: () => [this.options?.from ?? 0, this.options?.to ?? 1] },
        y: {
          distr: look.isWide ? 4 : 1,
          asinh: look.linear,
          range: (_, least, most) =>
            look.ends ? rangeOf(...look.ends, look.isWide, look.linear) : stripRange(least, most),
        },
      },
      axes: [
        { ...axis, size: look.hasX ? 34 : 0, values: look.hasX ? (_, ticks) => ticks.map((tick) => short(tick, 4)) : () => [] },
        { ...axis, size: AXIS_WIDTH, ...(look.isWide ? wideAxis(look.linear, look.isStrip ? 1 : 3) : { space: 32, values: (_, ticks) => ticks.map((tick) => short(tick, 4)) }) },
      ],
      cursor: {
        sync: { key: "explorer", setSeries: false },
        drag: { x: true, y: false, setScale: false },
        points: { size: 7 },
      },
      hooks: {
        drawClear: [(plot) => look.level && shade(plot, curve, look.level, paint)],
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
   * Mark kinks and poles, the bars of a strip, and the tangent at the cursor.
   *
   * @param {uPlot} plot
   * @param {{ level: Level | null, paint: Record<string, string>, isStrip?: boolean }} look
   */
  #mark(plot, { level, paint, isStrip }) {
    const { curve, options } = this;
    if (!curve || !options) return;
    clipped(plot, () => {
      markPlaces(plot, curve, isStrip ? null : level, paint);
      if (isStrip) markBars(plot, paint);
      else {
        const above = level ? curve.levels.indexOf(level) : -1;
        const y = (level ? level.analytic : curve.y)[this.cursor];
        const slope = curve.levels[above + 1]?.analytic[this.cursor];
        const x = curve.x[this.cursor];
        const reach = TANGENT * (options.to - options.from);
        if (isNumber(x) && isNumber(y) && isNumber(slope)) drawTangent(plot, { x, y, slope, reach }, paint);
      }
    });
  }

  /** @param {uPlot} plot */
  #follow(plot) {
    if (this.isMoving || !plot.cursor.event || plot.cursor.idx === null || plot.cursor.idx === undefined) return;
    const idx = this.#known(plot.cursor.idx);
    if (idx === this.cursor) return;
    this.cursor = idx;
    this.#redraw();
    this.listeners.moved(idx);
  }

  /**
   * Return the nearest point whose numeric derivatives are computed.
   *
   * @param {number} i
   */
  #known(i) {
    return this.curve?.isSparse ? 2 * Math.round(i / 2) : i;
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
