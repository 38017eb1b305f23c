// What on this page is hard to read or to reach, as a list of complaints.
() => {
  const complaints = [], all = selector => [...document.querySelectorAll(selector)];
  const complain = (element, text) =>
    complaints.push(`${element.outerHTML.slice(0, 120)}: ${text}`);

  all("details").forEach(details => { details.open = true; });
  if (document.documentElement.scrollWidth > innerWidth) {
    const wide = all("body *").find(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".wide, pre"));
    complain(wide ?? document.body, "the page scrolls sideways");
  }
  if (!document.documentElement.lang) complain(document.documentElement, "no language");
  if (all("h1").length !== 1 || all("main").length !== 1) complain(document.body, "no one h1 and main");
  let level = 1;
  for (const heading of all("h1, h2, h3, h4, h5, h6")) {
    const own = Number(heading.tagName[1]);
    if (own > level + 1) complain(heading, `after a heading of level ${level}`);
    level = own;
  }
  for (const image of all("img")) {
    if (!image.complete || !image.naturalWidth) complain(image, "not loaded");
    if (image.alt.trim().split(" ").length < 4) complain(image, "does not say what it shows");
    if (brightness(getComputedStyle(image).backgroundColor) < 0.8) complain(image, "dark behind it");
  }
  for (const field of all("select, input")) {
    if (!field.labels.length || !field.labels[0].textContent.trim()) complain(field, "no label");
  }
  for (const button of all("button, a")) if (!button.textContent.trim()) complain(button, "no name");
  for (const link of all('a[href^="#"]')) {
    if (!document.getElementById(link.hash.slice(1))) complain(link, "leads nowhere");
  }

  function channels(colour) {
    const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
    return { rgb: [r, g, b], a };
  }
  function brightness(colour) { // relative luminance of WCAG 2
    const [r, g, b] = channels(colour).rgb.map(c => c / 255)
      .map(c => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  function behind(element) {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (channels(colour).a) return colour;
    }
    return "rgb(255, 255, 255)";
  }
  for (const element of all("body *")) {
    const text = [...element.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.data.trim());
    if (!text || !element.checkVisibility() || element.matches(".blank, script, noscript, option")) continue;
    const [a, b] = [getComputedStyle(element).color, behind(element)].map(brightness);
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) complain(element, `contrast ${contrast.toFixed(2)}`);
  }
  return complaints;
}
