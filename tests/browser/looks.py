"""What a person sees: the contrast of texts, and pictures to look at."""

from typing import Any

from browser.chromium import ROOT

PICTURES = ROOT / "build" / "pictures"

# The contrast of each text in an element with what is behind it, by WCAG 2's formula. What is half
# transparent is mixed with what is behind it; text with a halo is on the colour of its halo.
CONTRAST = """root => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true })
  const rgba = text => {
    canvas.clearRect(0, 0, 1, 1)
    canvas.fillStyle = text
    canvas.fillRect(0, 0, 1, 1)
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data
    return [r, g, b, a / 255]
  }
  const over = (top, below, alpha) =>
    below.map((c, i) => i < 3 ? top[i] * alpha + c * (1 - alpha) : 1)
  const light = rgb => {
    const [r, g, b] = rgb.slice(0, 3).map(c => c / 255)
      .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const found = []
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT)
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement
    if (!node.data.trim() || !element.checkVisibility({ opacityProperty: true })) continue
    if (element.closest("title, style, script, .stale")) continue
    const chain = []
    for (let each = element; each; each = each.parentElement) chain.unshift(each)
    let behind = [255, 255, 255, 1], opacity = 1
    for (const each of chain) {
      const style = getComputedStyle(each), colour = rgba(style.backgroundColor)
      opacity *= parseFloat(style.opacity)
      behind = over(colour, behind, colour[3] * opacity)
    }
    const style = getComputedStyle(element), drawn = element instanceof SVGElement
    if (drawn && style.stroke !== "none") behind = rgba(style.stroke)
    const ink = rgba(drawn ? style.fill : style.color)
    const shown = over(ink, behind, ink[3] * opacity)
    const [a, b] = [light(shown), light(behind)]
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.data.trim().slice(0, 60)])
  }
  return found
}"""
# Elements of which something is hidden at their right edge.
CUT = """root => [...root.querySelectorAll("*")]
  .filter(each => !(each instanceof SVGElement) && each.checkVisibility())
  .filter(each => {
    const style = getComputedStyle(each)
    if (style.overflowX === "visible") return false
    if (each.scrollWidth > each.clientWidth + 1) return true
    if (style.textOverflow !== "ellipsis" || style.whiteSpace !== "nowrap") return false
    const text = document.createRange(), padding = parseFloat(style.paddingLeft) * 2
    text.selectNodeContents(each)  // a part of a pixel is enough for an ellipsis
    return text.getBoundingClientRect().width > each.getBoundingClientRect().width - padding
  })
  .map(each => each.outerHTML.slice(0, 200))"""


def take_picture(page: Any, name: str) -> None:
    """Keep what *page* shows in ``build/pictures``, which git does not keep."""
    page.screenshot(path=PICTURES / f"{name}.png", full_page=True)
