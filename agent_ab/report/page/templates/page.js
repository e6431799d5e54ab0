"use strict";
// Everything shown here was written by a model, an agent or a check: it goes into the page as text, never as markup.
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

  /** Make what steers the direction of reading visible, as the rest of the report does. */
  const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]/gu;
  const visible = (text) =>
    String(text).replace(HIDDEN, (c) => {
      const code = c.codePointAt(0);
      return code < 0x20 ? String.fromCharCode(0x2400 + code) : `<U+${code.toString(16).toUpperCase().padStart(4, "0")}>`;
    });

  /** Make an element. Strings among the children become text, with nothing hidden in it. */
  function h(tag, attributes = {}, ...children) {
    const [name, ...classes] = tag.split(".");
    const made = document.createElement(name);
    if (classes.length) made.className = classes.join(" ");
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value !== false && value != null) made.setAttribute(key, value === true ? "" : visible(value));
    }
    const shown = children.flat(Infinity).filter((child) => child != null && child !== "");
    made.append(...shown.map((child) => (child instanceof Node ? child : visible(child))));
    return made;
  }

  const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

  // ---- the pairs' data

  const opened = new Map();
  async function dossier(number) {
    if (!opened.has(number)) {
      const packed = document.getElementById(`dossier-${number}`);
      if (!packed) return null;
      const bytes = Uint8Array.from(atob(packed.textContent), (c) => c.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      const data = JSON.parse(await new Response(stream).text());
      data.evidence = packed.dataset.evidence;
      opened.set(number, data);
    }
    return opened.get(number);
  }

  // ---- text

  const LINES = 14;
  /** A message, its later lines folded away. */
  function message(text, kind = "", from = 0) {
    const shown = visible(text).replace(/\n+$/, "");
    const lines = shown.split("\n");
    const box = h(`div.message${kind}`);
    if (from > 0) box.append(h("pre.text", {}, shown.slice(0, from), h("mark", {}, shown.slice(from) || " ")));
    else if (lines.length <= LINES + 4) box.append(h("pre.text", {}, shown));
    else
      box.append(
        h("pre.text", {}, lines.slice(0, LINES).join("\n")),
        h("details", {}, h("summary", {}, count(lines.length - LINES, "more line")), h("pre.text", {}, lines.slice(LINES).join("\n"))),
      );
    return box;
  }

  function table(rows, kind, head) {
    return h(
      `table.${kind}`,
      {},
      h("thead", {}, h("tr", {}, head.map((name) => (name ? h("th", { scope: "col" }, name) : h("td"))))),
      h("tbody", {}, rows),
    );
  }

  const row = ([label, ...cells]) =>
    h("tr", {}, h("th", { scope: "row" }, label), cells.map((cell) => h("td", {}, cell)));

  // ---- checks

  /** JSON line by line; text that was shortened is no JSON any more and stays as it is. */
  function laidOut(text) {
    try {
      return JSON.stringify(JSON.parse(text), null, 1);
    } catch {
      return text;
    }
  }

  function side(check, arm) {
    const found = check[arm];
    if (!found) return h("td", { "data-arm": arm }, "not judged");
    const cell = h("td", { "data-arm": arm }, h(`span.${found.status}`, {}, found.status), ` ${found.reason}`);
    if (found.evidence)
      cell.append(
        h("details.inputs", {}, h("summary", {}, "inputs and replies", h("span.unseen", {}, ` of ${check.id}, ${arm}`)),
          h("pre.text.evidence-json", { tabindex: 0, role: "region", "aria-label": `inputs and replies of ${check.id}, ${arm}` }, laidOut(found.evidence))),
      );
    return cell;
  }

  function checks(data, target) {
    const order = { broken: 0, fixed: 1, "": 2 };
    const sorted = [...data.checks].sort((a, b) => b.scored - a.scored || order[a.flip] - order[b.flip]);
    const rows = sorted.map((check) =>
      h(
        `tr${check.flip ? "." + check.flip : ""}${check.id === target && check.scored ? ".target" : ""}`,
        {},
        h("th", { scope: "row" }, check.id, h("small", {}, check.flip || (check.scored ? "" : "probe, not scored")),
          check.mark ? h("small.note", {}, check.mark) : "", h("small", {}, check.rule)),
        side(check, "baseline"),
        side(check, "candidate"),
      ),
    );
    if (!rows.length) return h("p.none", {}, "The single checks are not known.");
    return table(rows, "judged", ["check", "baseline", "candidate"]);
  }

  // ---- where the arms part

  function parting(data) {
    const found = data.parting;
    if (!found) return h("p.none", {}, "There are no two conversations to compare.");
    const parts = [h("p", {}, found.sentence)];
    if (found.normalised)
      parts.push(h("p.about", {}, `But for ${found.rules.join(", ")}: ${found.normalised}`));
    if (found.where === "request" || found.where === "reply")
      parts.push(
        h("div.two", {}, ["baseline", "candidate"].map((arm) => {
          const has = found[arm];
          const token = has.token ? `token ${has.token.id} ${JSON.stringify(has.token.piece)}` : "";
          return h(`div.side.${arm}`, {}, h("h4", {}, `${arm} goes on`), message(has.value || "(nothing)"),
            h("p.ended", {}, [token, has.end].filter(Boolean).join(", ")));
        })),
      );
    for (const line of data.judge || []) parts.push(h("p.about", {}, `The independent judge: ${line}`));
    if ((data.symptoms || []).length)
      parts.push(h("details.rest", {}, h("summary", {}, "Symptoms"), table(data.symptoms.map(row), "facts", ["", "baseline", "candidate"])));
    if (data.aftermath.length)
      parts.push(h("details.rest", {}, h("summary", {}, "How they went on"), table(data.aftermath.map(row), "facts", ["", "baseline", "candidate"])));
    return h("div", {}, parts);
  }

  function common(left, right) {
    let i = 0;
    while (i < left.length && i < right.length && left[i] === right[i]) i++;
    return i;
  }

  function reply(turn, other) {
    const parts = [];
    const add = (name, text, theirs, kind) => {
      const from = other && theirs != null && theirs !== text ? common(visible(text), visible(theirs)) : 0;
      parts.push(h("p.who", {}, name), message(text, kind, from));
    };
    if (turn.reasoning) add("reasoning", turn.reasoning, other?.reasoning, ".thought");
    if (turn.content) add("reply", turn.content, other?.content, "");
    turn.calls.forEach(([name, text], i) => add(`calls ${name}`, text, other?.calls[i]?.[1], ".call"));
    parts.push(h("p.ended", {}, `ended: ${turn.end}`));
    return parts;
  }

  const asked = (turn) => turn.asked.map(([role, text]) => [h("p.who", {}, role), message(text)]);

  function exchange(item, found) {
    const here = found && item.exchange === found.exchange && !item.common;
    const { baseline: left, candidate: right } = item;
    const heading = h("h4", {}, `exchange ${item.exchange}${item.common ? ", equal in both" : here ? ": here they part" : ""}`);
    if (item.common) return h("div.turn", {}, heading, h("div.side.both", {}, asked(left), reply(left)));
    const sameQuestion = here && found.where === "reply" && left && right;
    const columns = [["baseline", left, right], ["candidate", right, left]].map(([arm, turn, other]) =>
      h(`div.side.${arm}`, {}, h("h4", {}, arm),
        turn ? [sameQuestion ? null : asked(turn), reply(turn, sameQuestion ? other : null)].flat(2) : h("p.none", {}, "no such exchange")));
    return h(`div.turn${here ? ".here" : ""}`, {}, heading, sameQuestion ? h("div.side.both", {}, asked(left)) : "", h("div.two", {}, columns));
  }

  function conversation(data) {
    if (!data.turns) return missing(data);
    const same = data.turns.filter((item) => item.common);
    const parted = data.turns.filter((item) => !item.common);
    const folded = h("details.rest", {}, h("summary", {}, `${count(same.length, "equal exchange")}${parted.length ? " before they part" : ""}`));
    folded.addEventListener("toggle", () => {
      if (folded.open && folded.childElementCount === 1) folded.append(...same.map((item) => exchange(item, data.parting)));
    });
    return h("div", {}, same.length ? folded : "", parted.slice(0, 12).map((item) => exchange(item, data.parting)), later(parted.slice(12), data));
  }

  function later(items, data) {
    if (!items.length) return "";
    const folded = h("details.rest", {}, h("summary", {}, count(items.length, "more exchange")));
    folded.addEventListener("toggle", () => {
      if (folded.open && folded.childElementCount === 1) folded.append(...items.map((item) => exchange(item, data.parting)));
    });
    return folded;
  }

  function missing(data) {
    if (data.evidence === "linked")
      return h("p.none", {}, "Left out to keep this page small. The evidence: ", h("a", { href: `${data.href}/` }, data.href));
    return h("p.none", {}, "The evidence was not there when this page was made.");
  }

  // ---- patches

  function files(text) {
    const found = new Map();
    let lines = null;
    for (const line of text.replace(/\n$/, "").split("\n")) {
      const start = /^diff --git (?:"?a\/.*"? )"?b\/(.*?)"?$/.exec(line);
      if (start) found.set(start[1], (lines = []));
      else if (!lines) found.set("", (lines = [line]));
      else if (!/^(index |--- |\+\+\+ )/.test(line) || lines.some((seen) => seen.startsWith("@@"))) lines.push(line);
    }
    return found;
  }

  const TOKENS = /(#.*$)|("""(?:(?!""").)*(?:"""|$)|'''(?:(?!''').)*(?:'''|$)|"(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?)|\b(and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield|None|True|False|self|match|case)\b|\b(\d[\d_.xa-fA-F]*)\b/g;
  function coloured(code, isPython) {
    if (!isPython) return [code];
    const parts = [];
    let at = 0;
    for (const found of code.matchAll(TOKENS)) {
      if (found.index > at) parts.push(code.slice(at, found.index));
      const kind = found[1] ? "co" : found[2] ? "st" : found[3] ? "kw" : "nu";
      parts.push(h(`span.${kind}`, {}, found[0]));
      at = found.index + found[0].length;
    }
    return [...parts, code.slice(at)];
  }

  function patched(lines, theirs, path) {
    const others = new Set(theirs || []);
    let number = null;
    const made = lines.map((line) => {
      const hunk = /^@@ -\d+(?:,\d+)? \+(\d+)/.exec(line);
      if (hunk) number = Number(hunk[1]) - 1;
      const sign = hunk ? "@" : line[0];
      if (number !== null && (sign === "+" || sign === " ")) number++;
      const kind = { "+": ".add", "-": ".del", "@": ".hunk" }[sign] || "";
      const own = theirs && (sign === "+" || sign === "-") && !others.has(line) ? ".own" : "";
      const shown = number !== null && (sign === "+" || sign === " ") ? number : null;
      return h(`span.l${kind}${own}`, { "data-n": shown }, sign === "@" ? line : coloured(line, path.endsWith(".py")));
    });
    return h("pre.patch", {}, made);
  }

  function patches(data) {
    const texts = ["baseline", "candidate"].map((arm) => data.patches[arm]);
    if (!texts[0] && !texts[1]) return h("p.none", {}, "No patch was recorded.");
    const notes = texts.flatMap((patch, i) => (patch?.flags || []).map((flag) => h("p.note", {}, `${["baseline", "candidate"][i]}: ${flag}`)));
    const sides = texts.map((patch) => files(patch?.text || ""));
    if (texts[0]?.text === texts[1]?.text) {
      if (!texts[0].text) return h("p.none", {}, "Neither arm changed a file.");
      return h("div", {}, notes, h("p.about", {}, "Equal in both arms."), [...sides[0]].map(([path, lines]) => h("div", {}, h("h4", {}, path), patched(lines, null, path))));
    }
    const empty = texts.findIndex((patch) => !patch?.text);
    if (empty >= 0) {
      const arms = ["baseline", "candidate"];
      const other = 1 - empty;
      return h("div", {}, notes, h("p.about", {}, `The ${arms[empty]} changed no file; this is what the ${arms[other]} changed.`),
        [...sides[other]].map(([path, lines]) => h("div.turn", {}, h(`div.side.${arms[other]}`, {}, h("h4", {}, path), patched(lines, null, path)))));
    }
    const paths = [...new Set(sides.flatMap((side) => [...side.keys()]))].filter((path) => path || sides.some((s) => s.get(path)?.[0]));
    const blocks = paths.map((path) => {
      const [left, right] = sides.map((side) => side.get(path));
      const column = (arm, lines, theirs) =>
        h(`div.side.${arm}`, {}, h("h4", {}, `${arm}: ${path}`), lines && lines[0] !== "" ? patched(lines, theirs || [], path) : h("p.none", {}, "not changed"));
      return h("div.turn", {}, h("div.two", {}, column("baseline", left, right), column("candidate", right, left)));
    });
    return h("div", {}, notes, h("p.about", {}, "A line with a bar at its left is in this arm's patch only."), blocks);
  }

  // ---- one pair

  const SECTIONS = {
    checks: ["Checks", (data, target) => checks(data, target)],
    part: ["Where they part", (data) => parting(data)],
    patches: ["Patches", (data) => patches(data)],
    talk: ["Conversations", (data) => conversation(data)],
    price: ["Price", (data) => table(data.arms.map(row), "facts", ["", "baseline", "candidate"])],
    proof: ["Proof", (data) => proof(data)],
  };

  function proof(data) {
    const lines = data.proof.map(([name, ok, detail]) =>
      h(`tr.${ok ? "good" : "bad"}`, {}, h("th", { scope: "row" }, name), h("td", {}, ok ? "ok" : "NO"), h("td", {}, detail)));
    const parts = [lines.length ? table(lines, "facts.proof", ["line", "", "what was compared"]) : h("p.none", {}, "Nobody proved that only the declared variable differed: UNPROVEN.")];
    for (const arm of ["baseline", "candidate"]) if (data.invalid[arm]) parts.push(h("p.note", {}, `${arm}: ${data.invalid[arm]}`));
    if (data.findings.length) parts.push(h("h4", {}, "Findings"), h("ul.plain", {}, data.findings.map((f) => h("li", {}, f))));
    const listed = ["baseline", "candidate"].filter((arm) => data.files[arm].length);
    if (listed.length)
      parts.push(h("h4", {}, "Evidence files"), h("ul.plain", {}, listed.map((arm) => h("li", {}, `${arm}: `, data.files[arm].flatMap((file, i) => [i ? ", " : "", h("a", { href: `${data.href}/${arm}/${encodeURIComponent(file)}` }, file)])))));
    return h("div", {}, parts);
  }

  const dialog = $("#pair");
  const numbers = $$("tr[data-pair]").map((tr) => Number(tr.dataset.pair));

  async function open(number, target) {
    let data;
    try {
      data = await dossier(number);
    } catch (error) {
      data = { broken: String(error) };
    }
    if (!data) return close();
    const at = numbers.indexOf(number);
    const go = (step, words) => h("button", { type: "button", disabled: numbers[at + step] === undefined, onclick: () => visit(numbers[at + step]) }, words);
    const title = h("h2", { id: "pair-title", tabindex: -1 }, data.broken ? `Pair ${number}` : `Pair ${number}: ${data.label}, ${data.outcome}`);
    const bar = h("div.bar", {}, title, h("span.moves", {}, go(-1, "previous"), go(1, "next"), h("button", { type: "button", onclick: leave }, "close")));
    const body = h("div.body", {});
    if (data.broken) body.append(h("p.none", {}, `This browser cannot unpack the pair's data: ${data.broken}`));
    else {
      const made = Object.entries(SECTIONS).map(([id, [name, draw]]) => [name, h("section", { id: `pair-${id}`, "aria-label": name }, h("h3", {}, name), draw(data, target))]);
      bar.append(h("p.jump", {}, made.map(([name, section]) => h("button", { type: "button", onclick: () => section.scrollIntoView() }, name))));
      body.append(h("p.about", {}, `${data.name}, played ${data.first} first${data.proven ? "" : ", UNPROVEN"}`), ...made.map(([, section]) => section));
    }
    dialog.replaceChildren(bar, body);
    if (!dialog.open) dialog.showModal();
    const shown = target && $("tr.target", body);
    if (shown) shown.scrollIntoView({ block: "center" });
    else body.scrollTop = 0;
    title.focus();
  }

  const visit = (number, check) => {
    location.hash = `pair=${number}${check ? "/" + encodeURIComponent(check) : ""}`;
  };
  function leave() {
    history.replaceState(null, "", location.pathname + location.search);
    close();
  }
  function close() {
    if (dialog.open) dialog.close();
  }
  function route() {
    const found = /^#pair=(\d+)(?:\/(.*))?$/.exec(location.hash);
    if (!found) return close();
    let target = "";
    try {
      target = decodeURIComponent(found[2] || "");
    } catch {
      target = "";
    }
    return open(Number(found[1]), target);
  }
  addEventListener("hashchange", route);
  dialog.addEventListener("cancel", (event) => {
    event.preventDefault();
    leave();
  });

  // ---- the grid and the plots open pairs

  document.addEventListener("click", (event) => {
    const cell = event.target.closest("button[data-p]");
    if (cell) return visit(cell.dataset.p, cell.closest("tr").dataset.check);
    const drawn = event.target.closest("svg [data-pair]");
    if (drawn) visit(drawn.dataset.pair);
  });

  // One stop of the Tab key for each grid; the arrows move within it.
  for (const grid of $$(".grid table")) {
    const rows = $$("tbody tr", grid).map((tr) => $$("button[data-p]", tr)).filter((cells) => cells.length);
    if (!rows.length) continue;
    for (const cells of rows) for (const cell of cells) cell.tabIndex = -1;
    rows[0][0].tabIndex = 0;
    grid.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (!step || !event.target.dataset.p) return;
      const shown = rows.filter((cells) => cells[0].offsetParent);
      const y = shown.findIndex((cells) => cells.includes(event.target));
      const next = shown[y + step[0]]?.[shown[y].indexOf(event.target) + step[1]];
      if (!next) return;
      event.preventDefault();
      event.target.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  }

  const only = $("#only-flips");
  const flipped = $$(".grid tr.flipped").length;
  // Imported numbers have no grid.
  if (flipped && flipped < $$(".grid tr[data-check]").length) only.closest("p").hidden = false;
  only?.addEventListener("change", () => {
    document.body.classList.toggle("only-flips", only.checked);
    for (const grid of $$(".grid table")) {
      const cells = $$("button[data-p]", grid).filter((cell) => cell.offsetParent);
      if (cells.length && !cells.some((cell) => cell.tabIndex === 0)) cells[0].tabIndex = 0;
    }
  });

  // ---- the pairs' filter

  const rows = $$("tr[data-pair]");
  if (rows.length > 4) {
    const filter = $(".filter");
    filter.hidden = false;
    filter.addEventListener("click", (event) => {
      const wanted = event.target.dataset.filter;
      if (wanted === undefined) return;
      for (const button of $$("button", filter)) button.setAttribute("aria-pressed", String(button === event.target));
      for (const tr of rows)
        tr.hidden = wanted === "flipped" ? tr.dataset.flips === "0" : wanted !== "" && tr.dataset.tone !== wanted;
      $("#shown").textContent = `${rows.filter((tr) => !tr.hidden).length} of ${rows.length}`;
    });
  }

  // ---- light and dark, print

  const theme = $("#theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
  const named = () => (theme.textContent = isDark() ? "light" : "dark");
  theme.hidden = false;
  named();
  dark.addEventListener("change", named);
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    named();
  });

  let unfolded = [];
  addEventListener("beforeprint", () => {
    unfolded = $$("details:not([open]):not(.figures):not(.inputs)");
    for (const details of unfolded) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of unfolded) details.open = false;
  });

  route();
  performance.mark("usable");
  document.documentElement.dataset.ready = "";
})();
