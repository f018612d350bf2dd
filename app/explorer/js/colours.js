/** The colours of the plots, which are those of the style sheet. */

const NAMES = ["ink", "muted", "grid", "y", "first", "second", "numeric", "band", "claim", "right", "wrong", "declared"];

/**
 * Return the colours by name, for the current scheme.
 *
 * @returns {Record<string, string>}
 */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/**
 * Return a colour with an opacity.
 *
 * @param {string} colour as #rrggbb
 * @param {number} opacity
 * @returns {string}
 */
export function translucent(colour, opacity) {
  return `${colour}${Math.round(opacity * 255)
    .toString(16)
    .padStart(2, "0")}`;
}
