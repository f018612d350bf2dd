/** The state of the page, which is in its address: everyone who opens it sees the same. */

// The most characters of the fields in an address. Servers and browsers refuse long ones.
const LONGEST = 4000;

/**
 * Return the name of the op of the page, empty on the page of all ops.
 *
 * @returns {string}
 */
export function opOfPage() {
  return decodeURIComponent(location.pathname.replace(/^\/explore\/?/, "").replace(/\/$/, ""));
}

/**
 * Return the address of the page of an op.
 *
 * @param {string} op
 * @returns {string}
 */
export function pageOf(op) {
  return `/explore/${encodeURIComponent(op)}`;
}

/**
 * The fields of the address, by name. A field with its default value is left out, and so are the largest of fields that
 * are too long together: those are kept in the history of the browser alone.
 *
 * The event `written` says that the address has changed, and `restored` that the browser has gone back or forth in it.
 */
export class Address extends EventTarget {
  #fields = stored();

  constructor() {
    super();
    addEventListener("popstate", () => {
      // A link within the page, such as the one to its content, has the same fields.
      if (history.state === null && location.search === this.#query) return this.#write();
      this.#fields = stored();
      this.dispatchEvent(new Event("written"));
      this.dispatchEvent(new Event("restored"));
    });
  }

  /**
   * Return a field, or its default.
   *
   * @param {string} name
   * @param {string} [byDefault]
   * @returns {string}
   */
  get(name, byDefault = "") {
    return this.#fields.get(name) ?? byDefault;
  }

  /**
   * Return the fields whose names start with a prefix, without it.
   *
   * @param {string} prefix
   * @returns {Record<string, string>}
   */
  all(prefix) {
    const found = [...this.#fields].filter(([name]) => name.startsWith(prefix));
    return Object.fromEntries(found.map(([name, value]) => [name.slice(prefix.length), value]));
  }

  /** The fields that are too large for the address, with their sizes in characters. */
  get leftOut() {
    let left = this.#fields.toString().length;
    const sizes = [...this.#fields].map(([name, value]) => ({ name, size: new URLSearchParams([[name, value]]).toString().length }));
    return sizes
      .sort((a, b) => b.size - a.size)
      .filter(({ size }) => {
        const isOut = left > LONGEST;
        if (isOut) left -= size + 1;
        return isOut;
      });
  }

  /**
   * Set fields; `null` removes one, which has its default value then.
   *
   * @param {Record<string, string | null>} fields
   */
  set(fields) {
    for (const [name, value] of Object.entries(fields)) {
      if (value === null) this.#fields.delete(name);
      else this.#fields.set(name, value);
    }
    this.#write();
  }

  /**
   * Remove all fields whose names start with a prefix.
   *
   * @param {string} prefix
   */
  clear(prefix) {
    for (const name of [...this.#fields.keys()]) if (name.startsWith(prefix)) this.#fields.delete(name);
    this.#write();
  }

  /** Begin a step: the back button leads to the fields as they are now. */
  step() {
    history.pushState({ fields: this.#fields.toString() }, "", location.href);
  }

  /** The query of the address. */
  get #query() {
    const left = new URLSearchParams(this.#fields);
    for (const { name } of this.leftOut) left.delete(name);
    return left.size ? `?${left}` : "";
  }

  #write() {
    history.replaceState({ fields: this.#fields.toString() }, "", `${location.pathname}${this.#query}${location.hash}`);
    this.dispatchEvent(new Event("written"));
  }
}

/** Return the fields of the current entry of the browser's history. */
function stored() {
  return new URLSearchParams(history.state?.fields ?? location.search);
}
