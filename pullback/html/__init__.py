"""Reports as HTML: a page for a pull request, and what a notebook shows. Plots are SVG, and nothing runs a script."""
