// Return what a reader cannot see of the text on this page: beyond the edge, or cut off by a box around it.
() => {
  const faults = [];
  const wide = document.documentElement.clientWidth;
  const root = document.querySelector("dialog[open]") || document.body;
  const scrolls = (element) => element.closest(".scroll, .evidence-json, .unseen, .patch");
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || !parent.checkVisibility() || scrolls(parent) || parent.closest("script, style, title, noscript, dialog:not([open])")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      if (!box.width) continue;
      const said = `${parent.tagName.toLowerCase()}.${parent.getAttribute("class") || ""}: ${node.data.trim().slice(0, 40)}`;
      if (box.right > wide + 1 || box.left < -1) faults.push(`beyond the edge: ${said}`);
      for (let around = parent; around && around !== root; around = around.parentElement) {
        if (getComputedStyle(around).overflowX === "visible" || around.matches("svg, .body")) continue;
        const edge = around.getBoundingClientRect();
        if (box.right > edge.right + 1 || box.left < edge.left - 1 || (getComputedStyle(around).overflowY === "hidden" && box.bottom > edge.bottom + 1))
          faults.push(`cut off by ${around.tagName}.${around.className}: ${said}`);
      }
    }
  }
  for (const text of document.querySelectorAll(".plot svg text")) {
    const box = text.getBoundingClientRect();
    const around = text.closest("svg").getBoundingClientRect();
    if (box.left < around.left - 2 || box.right > around.right + 2 || box.top < around.top - 2 || box.bottom > around.bottom + 2)
      faults.push(`beyond its plot: ${text.closest("figure").id}: ${text.textContent}`);
  }
  return faults;
};
