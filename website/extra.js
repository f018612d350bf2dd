// Every button of a block of code has a name of its own, and the keyboard reaches what scrolls.
document$.subscribe(() => {
  document.querySelectorAll(".md-code__nav").forEach((nav, i) => nav.setAttribute("aria-label", `Block of code ${i + 1}`));
  document.querySelectorAll(".md-typeset__scrollwrap").forEach((table) => (table.tabIndex = 0));
});
