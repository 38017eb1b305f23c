"""How a figure looks, in words: what matplotlib was told to draw, without the pixels."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.spines import Spine
from matplotlib.text import Text

EXPECTED = Path(__file__).parents[1] / "report/expected/figures"
MOST = 16  # numbers of an artist that are written out
FONT = ("color", "size", "weight", "alpha", "ha", "va", "rotation", "wrap")
SHAPE = ("facecolor", "edgecolor", "linewidth", "linestyle", "alpha", "zorder")
LINE = ("xdata", "ydata", "color", "linewidth", "linestyle", "marker", "markersize", "alpha")
LINE += ("markerfacecolor", "markeredgewidth", "markevery", "zorder", "clip_on")
KINDS: dict[type, tuple[str, ...]] = {  # what is told of each; the first that fits
    Line2D: LINE,
    Text: ("text", "position", *FONT),
    Rectangle: ("xy", "width", "height", *SHAPE),
    Patch: ("path", *SHAPE),
    Collection: ("offsets", "paths", "sizes", "clip_on", *SHAPE),
    AxesImage: ("array", "clim", "cmap"),
}
STANDARD = {Line2D: Line2D([], []), Text: Text(), Rectangle: Rectangle((0, 0), 0, 0)}


def plain(value: Any, key: str) -> str:
    """A value of an artist with 4 digits."""
    if isinstance(value, str) or value is None or isinstance(value, bool):
        return to_hex(value) if "color" in key and value not in (None, "none") else repr(value)
    if "color" in key:
        return " ".join(to_hex(c, keep_alpha=True) for c in np.atleast_2d(value))
    if isinstance(value, np.ndarray | list | tuple | int | float | np.generic):
        try:
            numbers = np.ma.filled(np.ma.asarray(value, dtype=float), np.nan).ravel()
        except (TypeError, ValueError):
            return repr(value)
        words = [f"{number:.4g}" for number in numbers + 0.0]
        if len(words) > MOST:
            words = [
                *words[:4],
                f"… {len(words)} in all, mean {np.nanmean(numbers):.4g} …",
                words[-1],
            ]
        return " ".join(words)
    vertices = getattr(value, "vertices", None)
    return plain(vertices, "") if vertices is not None else getattr(value, "name", repr(value))


def facts(artist: Artist) -> dict[str, str]:
    kind = next(kind for kind in KINDS if isinstance(artist, kind))
    found = {}
    for key in KINDS[kind]:
        value = getattr(artist, f"get_{key}", str)()
        many = key == "paths"
        found[key] = " / ".join(plain(path, "") for path in value) if many else plain(value, key)
    return found


def told(artist: Artist, without: tuple[str, ...] = ()) -> str:
    """Its facts, but for those that every artist of its kind has."""
    standard = STANDARD.get(type(artist))
    usual = facts(standard) if standard else {}
    usual["markerfacecolor"] = facts(artist).get("color", "")
    told = {key: value for key, value in facts(artist).items() if usual.get(key) != value}
    words = [f"{key} {value}" for key, value in told.items() if key not in without]
    return f"  {type(artist).__name__}: {'; '.join(words)}"


def of_axis(axes: Axes, name: str) -> str:
    axis = getattr(axes, f"{name}axis")
    low, high = sorted(axis.get_view_interval())
    places = [tick for tick in axis.get_ticklocs() if low <= tick <= high]
    labels = axis.get_major_formatter().format_ticks(places)
    ticks = ", ".join(f"{place:.4g} {label}" for place, label in zip(places, labels, strict=True))
    limits = plain(getattr(axes, f"get_{name}lim")(), "")
    minor = len(axis.get_minorticklocs())
    look = axis.get_tick_params()
    words = f"length {look.get('length')}, grid {look['gridOn'] and look['grid_color']}"
    return f"  {name}: {axis.get_scale()}, {limits}; ticks {ticks}; {minor} minor, {words}"


def of_axes(axes: Axes) -> Iterator[str]:
    yield f"axes {'shown' if axes.get_visible() else 'hidden'}, below {axes.get_axisbelow()}"
    if axes.get_visible():
        titles = [axes.title, axes._left_title, axes._right_title]  # type: ignore[attr-defined]
        labels = [axes.xaxis.label, axes.yaxis.label]
        spines = [name for name, spine in axes.spines.items() if spine.get_visible()]
        yield f"  spines {' '.join(spines)}, frame {axes.axison}"
        yield from (of_axis(axes, name) for name in "xy")
        for text in filter(Text.get_text, (*titles, *labels)):
            yield told(text, ("position",))  # which depends on the layout
        for artist in axes.get_children() if axes.get_label() != "<colorbar>" else []:
            if artist in titles or artist is axes.patch or isinstance(artist, Spine):
                continue
            if isinstance(artist, tuple(KINDS)):
                yield told(artist)
    if legend := axes.get_legend():
        yield from of_legend(legend)


def of_legend(legend: Legend) -> Iterator[str]:
    yield f"legend of {legend._ncols} columns, frame {legend.get_frame_on()}"  # type: ignore[attr-defined]
    for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True):
        assert handle is not None
        look = told(handle, ("xdata", "ydata"))
        yield f"{look}; {text.get_text()!r} of size {text.get_fontsize():.3g}"


def words_of(figure: Figure) -> str:
    inches = plain(figure.get_size_inches(), "")
    lines = [f"figure of {inches} inches, {figure.dpi:.0f} dots each"]
    for axes in figure.axes:
        lines += of_axes(axes)
    for legend in figure.legends:
        lines += of_legend(legend)
    lines += map(told, figure.texts)
    return "\n".join([*lines, ""])


def check_figure(name: str, figure: Figure, folder: Path) -> None:
    """Check a figure against tests/report/expected/figures/, where it was found right; where a
    change is meant, copy the file that is named over the old one.
    """
    found = folder / f"{name}.txt"
    found.write_text(words_of(figure))
    assert found.read_text() == (EXPECTED / found.name).read_text(), f"see {found}"
