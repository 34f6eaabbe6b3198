"""A matplotlib figure in a notebook's own colours: its text is light where the notebook is dark."""

from __future__ import annotations

import base64
import io
import re

from matplotlib import rc_context
from matplotlib.figure import Figure

from workbench.views.colours import INK

_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # none of them
_SIZE = re.compile(r' width="[\d.]+pt" height="[\d.]+pt"')
_STYLE = re.compile(r"<style.*?</style>", re.DOTALL)  # it would hold for the whole page
_PATH = re.compile(r' d="[^"]*"')
_FINE = re.compile(r"(\.\d\d)\d+")  # parts of a point that nobody sees
_ONCE = "<style>.wb-picture img {display:none} .wb-picture div {display:block !important}</style>"


class Picture(Figure):
    """A figure that a notebook shows, also if pyplot is not imported."""

    def _repr_png_(self) -> bytes:
        """On white, for files and for front ends that show no HTML."""
        out = io.BytesIO()
        self.savefig(out, format="png", facecolor="white")
        return out.getvalue()

    def _repr_html_(self) -> str:
        """On the page itself, in its colours.

        Front ends that do not trust a notebook leave out the SVG but for its text, and the style
        that shows it and hides the picture on white.
        """
        png = base64.b64encode(self._repr_png_()).decode()
        told = "; ".join(filter(None, (axes.get_title() for axes in self.axes))) or "a figure"
        alone = f'<img alt="{told}" src="data:image/png;base64,{png}">'
        svg = f'<div style="display:none">{self._svg()}</div>'
        return f'{_ONCE}<div class="wb-picture">{svg}{alone}</div>'

    def _svg(self) -> str:
        out = io.StringIO()
        with rc_context({"svg.fonttype": "none", "font.family": "sans-serif"}):
            self.savefig(out, format="svg", transparent=True, metadata=_METADATA)
        svg = out.getvalue()
        svg = _PATH.sub(lambda path: _FINE.sub(r"\1", path[0]), svg)
        svg = _STYLE.sub("", svg[svg.index("<svg") :]).replace(INK, "currentColor")
        width = round(self.get_figwidth() * 72)
        return _SIZE.sub(f' style="width:100%;max-width:{width}pt" role="img"', svg, count=1)


def draw_in_ink(figure: Figure) -> None:
    """Give the axes, ticks, titles and legends of *figure* the colour of the page's text."""
    for axes in figure.axes:
        axes.set_facecolor("none")
        axes.tick_params(colors=INK)
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
            text.set_color(INK)
        for spine in axes.spines.values():
            spine.set_color(INK)
    for legend in (*figure.legends, *(axes.get_legend() for axes in figure.axes)):
        for text in legend.get_texts() if legend else ():
            text.set_color(INK)
