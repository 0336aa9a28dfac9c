"""Pages and figures as text: HTML, SVG and Markdown from numbers that are there. Computes none."""
