/** The state of the page, which is in its address: everyone who opens it sees the same. */

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

/** The fields of the address, by name. A field with its default value is left out. */
export class Address {
  #fields = new URLSearchParams(location.search);

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

  /**
   * Set fields; an empty one is removed.
   *
   * @param {Record<string, string>} fields
   */
  set(fields) {
    for (const [name, value] of Object.entries(fields)) {
      if (value === "") this.#fields.delete(name);
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

  #write() {
    const query = this.#fields.toString();
    history.replaceState(null, "", `${location.pathname}${query && `?${query}`}${location.hash}`);
  }
}
