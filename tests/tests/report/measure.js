// Measures the pages in this document's frames, as a reader would see them, and leaves the result in the document as JSON.
"use strict";

// The least contrast of text (WCAG 2.2, 1.4.3), and the least height of a line of it in a drawing.
const CONTRAST = 4.5;
const HEIGHT = 9;

const channels = (colour) => colour.match(/[\d.]+/g).map(Number);

function luminance([red, green, blue]) {
  const linear = [red, green, blue].map((channel) => {
    const part = channel / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

function background(view, element) {
  for (let at = element; at; at = at.parentElement) {
    const colour = channels(view.getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
}

function contrast(view, element) {
  const style = view.getComputedStyle(element);
  const text = element.closest("svg") ? style.fill : style.color;
  const [one, other] = [luminance(channels(text)), luminance(background(view, element))];
  return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
}

const overlap = (a, b) =>
  Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1.5;

const inside = (a, b) => a.left >= b.left - 1 && a.right <= b.right + 1 && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;

function drawing(svg, view, found) {
  const box = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")].map((text) => [text, text.getBoundingClientRect()]);
  for (const [index, [text, place]] of texts.entries()) {
    const says = JSON.stringify(text.textContent);
    if (!inside(place, box)) found(`${says} is not inside its drawing`);
    if (place.height < HEIGHT) found(`${says} is ${place.height} high`);
    for (const [other, otherPlace] of texts.slice(index + 1)) {
      if (overlap(place, otherPlace)) found(`${says} overlaps ${JSON.stringify(other.textContent)}`);
    }
  }
  for (const mark of svg.querySelectorAll("path, rect, circle")) {
    const place = mark.getBoundingClientRect();
    if (!inside(place, { left: box.left - 4, right: box.right + 4, top: box.top - 4, bottom: box.bottom + 4 })) {
      found(`a ${mark.tagName} is not inside its drawing`);
    }
  }
  return { says: svg.getAttribute("aria-label"), width: box.width, height: box.height };
}

function measure(frame) {
  const [page, view] = [frame.contentDocument, frame.contentWindow];
  const findings = [];
  const found = (what) => findings.push(`${frame.title}: ${what}`);
  const root = page.documentElement;
  if (root.scrollWidth > root.clientWidth) found(`the page is ${root.scrollWidth} wide`);
  const shown = (element) => element.getClientRects().length > 0;
  const drawings = [...page.querySelectorAll("svg")].filter(shown).map((svg) => drawing(svg, view, found));
  for (const element of page.querySelectorAll("h1, h2, p, dt, dd, th, td, code, footer, .legend span, svg text")) {
    if (!shown(element) || !element.textContent.trim()) continue;
    const ratio = contrast(view, element);
    if (ratio < CONTRAST) found(`<${element.tagName} class=${element.className.baseVal ?? element.className}> has a contrast of ${ratio.toFixed(2)}`);
  }
  for (const element of page.querySelectorAll("dd, dt, pre, .notice")) {
    if (element.scrollWidth > element.clientWidth + 1) found(`${JSON.stringify(element.textContent)} does not fit`);
  }
  const dark = luminance(background(view, page.body)) < 0.2;
  return { title: frame.title, dark, drawings, findings, title_of_page: page.title, images: page.images.length };
}

addEventListener("load", () => {
  const result = document.createElement("pre");
  result.id = "measured";
  // Without characters that markup gives a meaning.
  const escape = (character) => "\\u00" + character.charCodeAt(0).toString(16);
  result.textContent = JSON.stringify([...document.querySelectorAll("iframe")].map(measure)).replace(/[<>&]/g, escape);
  document.body.append(result);
});
