"""The colours and the layout of the report, light and dark. Pure."""

from __future__ import annotations

from malt.watch.trace.summary import ACTIVITIES

_LIGHT = """
  --back: #ffffff; --front: #1f2430; --dim: #667085; --line: #e4e7ec; --card: #f8f9fb;
  --compute: #2a9d8f; --send: #e9a23b; --merge: #3b82c4; --wait: #d1495b; --yield: #a78bca; --collective: #8d99ae;
  --one: #3b82c4; --two: #e07a2f; --heat: #5b3fa0; --on-heat: #ffffff;
"""
_DARK = """
  --back: #14171f; --front: #e6e8ee; --dim: #98a1b3; --line: #2b303c; --card: #1b1f29;
  --compute: #2fb5a4; --send: #f0b04f; --merge: #5aa2e8; --wait: #ea6478; --yield: #b9a0dd; --collective: #7d889c;
  --one: #5aa2e8; --two: #f39250; --heat: #a78bfa; --on-heat: #14171f;
"""
_PAGE = """
body { background: var(--back); color: var(--front); font: 15px/1.5 system-ui, sans-serif; max-width: 1360px;
  margin: 0 auto; padding: 24px; }
h1 { font-size: 24px; margin: 0 0 4px; }
h2 { font-size: 17px; margin: 0 0 4px; }
h3 { font-size: 14px; margin: 8px 0 4px; }
p { margin: 4px 0 10px; }
ul { margin: 4px 0; padding-left: 20px; }
li { margin: 4px 0; }
.dim, .about { color: var(--dim); }
.about { font-size: 13px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(520px, 100%), 1fr)); gap: 16px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 14px 16px;
  min-width: 0; }
section.wide { grid-column: 1 / -1; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); gap: 16px; }
.pair > div { min-width: 0; }
table { border-collapse: collapse; font-size: 13px; width: 100%; table-layout: fixed; }
td, th { text-align: left; padding: 2px 10px 2px 0; vertical-align: top; overflow-wrap: anywhere; }
th { color: var(--dim); font-weight: 500; width: 120px; }
.key { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin: 0 5px 0 14px;
  vertical-align: -1px; }
.key:first-child { margin-left: 0; }
"""
_CHARTS = """
svg { display: block; width: 100%; height: auto; max-width: var(--natural); }
@media (max-width: 640px) {  /* a narrow chart is scrolled, as its words would be too small */
  .chart { overflow-x: auto; }
  svg { min-width: calc(0.85 * var(--natural)); }
}
svg text { font-size: 11px; fill: var(--front); }
svg text.end { text-anchor: end; }
svg text.middle { text-anchor: middle; }
svg text.dim { fill: var(--dim); }
svg text.strong { fill: var(--on-heat); }
.grid { stroke: var(--line); }
.line { fill: none; stroke-width: 1.8; }
.heat { fill: var(--heat); }
.none { fill: var(--line); fill-opacity: 0.5; }
"""
RUNS = ("one", "two")
"""The classes of the runs that a page shows."""
STYLE = (
    f":root {{ color-scheme: light dark; {_LIGHT} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}\n"
    + _PAGE + _CHARTS
    + "".join(f".{name} {{ fill: var(--{name}); }}\n.key.{name} {{ background: var(--{name}); }}\n"
              for name in (*ACTIVITIES, *RUNS))
    + "".join(f".line.{name} {{ fill: none; stroke: var(--{name}); }}\n" for name in (*ACTIVITIES, *RUNS))
)  # fmt: skip
"""The style sheet of the page."""
