/** Fingers on a plot: one moves the range, two change its width. A finger that moves up or down scrolls the page. */

/** @typedef {{ from: number, to: number }} Range */
/** @typedef {{ range: () => Range, slid: (from: number, to: number) => void, ended: (from: number, to: number) => void }} Listeners */

// A finger that moves by fewer pixels has only touched.
const SLACK = 6;

/** The fingers. `slid` gets the range while they move, `ended` that at the end. */
export class Touch {
  /**
   * @param {HTMLElement} root
   * @param {Listeners} listeners
   */
  constructor(root, listeners) {
    this.root = root;
    this.listeners = listeners;
    /** @type {Map<number, { at: number, began: number, value: number }>} */
    this.fingers = new Map();
    this.range = { from: 0, to: 1 };
    this.isMoving = false;
    root.addEventListener("pointerdown", (event) => this.#down(event));
    root.addEventListener("pointermove", (event) => this.#move(event), true);
    root.addEventListener("pointerup", (event) => this.#up(event));
    root.addEventListener("pointercancel", (event) => this.#up(event));
  }

  /** @param {PointerEvent} event */
  #down(event) {
    if (event.pointerType !== "touch") return;
    if (!this.fingers.size) this.range = this.listeners.range();
    this.fingers.set(event.pointerId, { at: event.clientX, began: event.clientX, value: 0 });
    this.#hold();
  }

  /** @param {PointerEvent} event */
  #move(event) {
    const finger = this.fingers.get(event.pointerId);
    if (!finger) return;
    finger.at = event.clientX;
    if (!this.isMoving && this.fingers.size < 2 && Math.abs(finger.at - finger.began) < SLACK) return;
    this.isMoving = true;
    const [one, other] = [...this.fingers.values()];
    if (one) this.range = moved(this.range, this.#box, one, other);
    this.listeners.slid(this.range.from, this.range.to);
  }

  /** @param {PointerEvent} event */
  #up(event) {
    if (!this.fingers.delete(event.pointerId)) return;
    this.#hold();
    if (this.fingers.size || !this.isMoving) return;
    this.isMoving = false;
    this.listeners.ended(this.range.from, this.range.to);
  }

  /** Each finger holds the number that is below it now. */
  #hold() {
    const { left, width } = this.#box;
    const { from, to } = this.range;
    for (const finger of this.fingers.values()) finger.value = from + ((finger.at - left) / width) * (to - from);
  }

  /** The area of the curves. */
  get #box() {
    return (this.root.querySelector(".u-over") ?? this.root).getBoundingClientRect();
  }
}

/**
 * Return the range in which the numbers that the fingers hold are below them.
 *
 * @param {Range} range
 * @param {DOMRect} box
 * @param {{ at: number, value: number }} one
 * @param {{ at: number, value: number } | undefined} other
 * @returns {Range}
 */
function moved({ from, to }, { left, width }, one, other) {
  const share = (/** @type {{ at: number }} */ finger) => (finger.at - left) / width;
  const apart = other ? share(other) - share(one) : 0;
  // Fingers at one place, or that have crossed, only move the range.
  const wide = other && apart / (other.value - one.value) > 1e-3 / (to - from) ? (other.value - one.value) / apart : to - from;
  const start = one.value - share(one) * wide;
  return { from: start, to: start + wide };
}
