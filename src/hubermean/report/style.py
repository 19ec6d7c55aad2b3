"""The style sheet of a page: light and dark screens, phones, and print."""

# Text has a contrast of at least 4.5 on its ground in either scheme, lines and marks one of at least 3.
STYLE = """
:root {
  color-scheme: light dark;
  --ground: #f4f5f7; --card: #ffffff; --ink: #18212d; --muted: #526071; --rule: #d9dee5; --band: #f4f6f9;
  --accent: #1d5ea8; --wide: #5d8fc7; --narrow: #a9c8eb; --warn: #a3261c;
  --part0: #1d5ea8; --part1: #2a8a77; --part2: #b26a12; --part3: #8a55a8; --part4: #b3445b; --part5: #5f7d1f;
  --part6: #0f8296; --part7: #6a7380;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #0f1318; --card: #181e26; --ink: #e8edf3; --muted: #a6b2c1; --rule: #323c49; --band: #1e2530;
    --accent: #8fc0f7; --wide: #6b9fd8; --narrow: #31567f; --warn: #ff9d94;
    --part0: #6ea8ea; --part1: #58bfa9; --part2: #dfa04c; --part3: #c08fe0; --part4: #e8839a; --part5: #a4c45c;
    --part6: #4fc0d4; --part7: #9aa6b4;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; padding: 2rem 1rem 3rem; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere;
}
main { max-width: 52rem; margin: 0 auto; }
header { margin: 0 0 1.25rem; }
h1 { font-size: 1.45rem; line-height: 1.25; margin: 0; }
h2 { font-size: 1.05rem; margin: 0 0 .6rem; }
h3 { font-size: .95rem; margin: 1.1rem 0 .3rem; }
p { margin: .4rem 0 .7rem; max-width: 46rem; }
.sub, .note, figcaption, footer { color: var(--muted); font-size: .9rem; }
.sub { margin: .25rem 0 0; }
section {
  background: var(--card); border: 1px solid var(--rule); border-radius: 12px;
  padding: 1.25rem 1.5rem; margin: 0 0 1rem;
}
section > :last-child { margin-bottom: 0; }
.warning {
  flex: 1 1 18rem; align-self: flex-start; padding: .6rem .9rem; color: var(--warn);
  border: 1px solid var(--warn); border-left-width: 5px; border-radius: 8px; font-size: .95rem;
}
.warning p { margin: .2rem 0 .4rem; color: var(--ink); }
.warning p:last-child { margin-bottom: 0; }
.heroes { display: flex; flex-wrap: wrap; gap: 1rem 3rem; margin-bottom: .5rem; }
.label { color: var(--muted); font-size: .95rem; }
.value { font-size: 3rem; line-height: 1.15; font-weight: 650; letter-spacing: -.02em; color: var(--accent); }
.several .value { font-size: 2.1rem; }
.range { font-size: 1.05rem; }
figure { margin: 1rem 0 0; }
figcaption { margin-top: .35rem; }
.strip + .strip { margin-top: 1.5rem; }
svg { display: block; overflow: visible; }
svg svg { overflow: hidden; }
svg svg.plot { overflow: visible; }
.chart { padding: 0; }
.chart text { font-size: 13px; fill: var(--ink); font-family: inherit; }
.chart .tick { font-size: 12px; fill: var(--muted); }
.chart .missing { fill: var(--muted); font-style: italic; }
.grid { stroke: var(--rule); stroke-width: 1; }
.base { stroke: var(--muted); stroke-width: 1; }
.step { stroke: var(--accent); stroke-width: 2; stroke-linecap: round; }
.over-time { fill: var(--narrow); fill-opacity: .55; }
.line { fill: none; stroke: var(--accent); stroke-width: 2; stroke-linejoin: round; }
.time .tick { paint-order: stroke; stroke: var(--card); stroke-width: 3px; }
.history { margin-top: .4rem; }
.zero { stroke: var(--muted); stroke-width: 1; stroke-dasharray: 3 3; }
.band { fill: var(--band); }
.wide { stroke: var(--wide); stroke-width: 2; }
.narrow { fill: var(--narrow); stroke: var(--wide); stroke-width: 1; }
.dot { fill: var(--accent); stroke: var(--card); stroke-width: 1.5; }
.part0 { fill: var(--part0); } .part1 { fill: var(--part1); } .part2 { fill: var(--part2); }
.part3 { fill: var(--part3); } .part4 { fill: var(--part4); } .part5 { fill: var(--part5); }
.part6 { fill: var(--part6); } .part7 { fill: var(--part7); }
.bar { margin-bottom: .9rem; }
.bar rect { stroke: var(--card); stroke-width: 1.5; }
.key { display: inline-block; width: .8em; height: .8em; margin-right: .5em; vertical-align: -.05em; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .95rem; }
caption { text-align: left; color: var(--muted); font-size: .9rem; padding: 0 0 .3rem; }
th, td { text-align: left; padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
th, td { overflow-wrap: break-word; }
tbody tr:last-child > * { border-bottom: 0; }
thead th { color: var(--muted); font-weight: 600; font-size: .88rem; }
tbody th { font-weight: 500; }
.number { text-align: right; white-space: nowrap; }
.when { white-space: nowrap; }
figure + .scroll, figure + .facts { margin-top: 1rem; }
.facts tbody th { color: var(--muted); font-weight: 400; width: 34%; }
ul { margin: .3rem 0 0; padding-left: 1.2rem; }
li { margin: .25rem 0; max-width: 46rem; }
footer { margin-top: 1.25rem; }
@media (max-width: 34rem) {
  body { padding: 1rem .6rem 2rem; }
  section { padding: 1rem; border-radius: 10px; }
  .value { font-size: 2.3rem; }
  .several .value { font-size: 1.7rem; }
  .spare { display: none; }
  .chart text { font-size: 12px; }
  th, td { padding-right: .6rem; }
}
@media print {
  :root {
    color-scheme: light;
    --ground: #ffffff; --card: #ffffff; --ink: #000000; --muted: #444b55; --rule: #c9ced6; --band: #f4f6f9;
    --accent: #124a8a; --wide: #4a7db8; --narrow: #a9c8eb; --warn: #a3261c;
    --part0: #1d5ea8; --part1: #2a8a77; --part2: #b26a12; --part3: #8a55a8; --part4: #b3445b; --part5: #5f7d1f;
    --part6: #0f8296; --part7: #6a7380;
  }
  @page { margin: 16mm; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  body { padding: 0; font-size: 10.5pt; }
  main { max-width: none; }
  section { padding: 0 0 .8rem; border: 0; border-radius: 0; margin-bottom: .6rem; }
  .scroll { overflow: visible; }
  figure, tr, li, .heroes { break-inside: avoid; }
  /* The tallest chart fits a sheet, with the heading above it. */
  .forest { zoom: .75; }
  h2, h3 { break-after: avoid; }
}
"""

# A notebook is light or dark whatever the system is: text takes its color, and marks stand out on either ground.
NOTEBOOK_STYLE = """
.hubermean-groups { max-width: 46rem; margin: .5rem 0; }
.hubermean-groups svg { display: block; overflow: visible; }
.hubermean-groups svg svg { overflow: hidden; }
.hubermean-groups svg svg.plot { overflow: visible; }
.hubermean-groups text { font-size: 12px; fill: currentColor; font-family: inherit; }
.hubermean-groups .tick, .hubermean-groups .missing { opacity: .7; }
.hubermean-groups .missing { font-style: italic; }
.hubermean-groups .grid, .hubermean-groups .base { stroke: currentColor; stroke-opacity: .2; }
.hubermean-groups .zero { stroke: currentColor; stroke-opacity: .5; stroke-dasharray: 3 3; }
.hubermean-groups .band { fill: currentColor; fill-opacity: .04; }
.hubermean-groups .wide { stroke: #4a86c5; stroke-width: 2; }
.hubermean-groups .narrow { fill: #4a86c5; fill-opacity: .45; }
.hubermean-groups .over-time { fill: #4a86c5; fill-opacity: .3; }
.hubermean-groups .line { fill: none; stroke: #4a86c5; stroke-width: 2; }
.hubermean-groups .dot { fill: #4a86c5; }
"""
