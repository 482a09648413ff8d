"use strict";
(() => {
  const story = JSON.parse(document.getElementById("story").textContent);
  const rows = [...document.querySelectorAll(".row")];
  const panel = document.getElementById("panel");
  const trace = document.getElementById("trace");
  const arcs = document.getElementById("arcs");
  const sources = new Map(story.sources.map((s) => [s.file, s.lines]));
  let picked = -1;

  // All text goes through text nodes: nothing of the guest's is ever parsed as markup.
  const make = (tag, cls, ...kids) => {
    const node = document.createElement(tag);
    if (cls) node.className = cls;
    node.append(...kids.filter((kid) => kid !== null && kid !== undefined));
    return node;
  };
  const hue = (column) => "c" + (column % 8);
  const where = (p) => (p.file ? p.file.split(/[\/\\]/).pop() + (p.line ? ":" + p.line : "") : "");
  const name = (p) => p.function || "0x" + p.pc.toString(16).padStart(8, "0");
  const short = (column) => "t" + story.threads[column].id;

  const words = new Set(("auto break case char const continue default do double else enum extern float for goto if inline int long " +
    "register return short signed sizeof static struct switch typedef union unsigned void volatile while bool true false NULL " +
    "fn let mut pub impl match use mod unsafe loop").split(" "));
  const token = /(\/\/.*|\/\*.*?(?:\*\/|$)|^\s*\*.*)|("(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?)|([A-Za-z_]\w*)|(\b\d\w*)/g;
  const paint = (text) => {
    const out = document.createDocumentFragment();
    let at = 0;
    for (const m of text.matchAll(token)) {
      const cls = m[1] ? "m" : m[2] ? "s" : m[3] ? (words.has(m[3]) ? "k" : "") : "d";
      if (!cls) continue;
      out.append(text.slice(at, m.index), make("span", cls, m[0]));
      at = m.index + m[0].length;
    }
    out.append(text.slice(at));
    return out;
  };

  const around = 7;
  const source = (p) => {
    const lines = p.file && sources.get(p.file);
    if (!lines || !p.line) return make("p", "muted", p.file ? "The source of " + p.file + " is not at hand." : "No source is known for this place.");
    const box = make("div", "source", make("div", "file", p.file));
    let before = null;
    for (const [number, text] of lines) {
      if (Math.abs(number - p.line) > around) continue;
      if (before !== null && number > before + 1) box.append(make("div", "gap", "⋮"));
      before = number;
      box.append(make("div", number === p.line ? "l here" : "l", make("i", "", String(number)), make("span", "", paint(text || " "))));
    }
    return box;
  };

  const show = (index) => {
    const row = story.rows[index];
    const view = make("section", "");
    const links = [];
    const look = (p, node) => {
      links.forEach((link) => link.classList.remove("here"));
      if (node) node.classList.add("here");
      view.replaceChildren(make("h4", "", "Source"), source(p));
    };
    const link = (node, p) => {
      node.classList.add("link");
      links.push(node);
      node.addEventListener("click", () => look(p, node));
      return node;
    };
    const close = make("button", "close", "×");
    close.setAttribute("aria-label", "Close");
    close.addEventListener("click", () => panel.classList.remove("open"));
    const count = row.instructions === null ? [] : [row.instructions.toLocaleString("en") + " instructions"];
    const small = (row.system_call ? ["system call " + row.system_call] : []).concat(count).join(" · ");
    const head = make("header", hue(row.column), make("span", "mono", "Row " + row.number), make("b", "", story.threads[row.column].title), make("span", "small", small), close);
    // Without debug information a place has no file and line.
    const place = frame => name(frame) + (where(frame) ? " (" + where(frame) + ")" : "");
    const from = row.from ? place(row.from) : "its start";
    const what = make("section", "", make("h4", "", "What it did"),
      make("p", "", "Ran from " + from + " to " + place(row.to) + "."),
      make("div", "end " + row.end.kind, row.end.text));
    const parts = [head, what, view];

    let first = null;
    if (row.stack.length) {
      const list = make("ol", "stack");
      for (const p of row.stack) {
        const item = link(make("li", "", make("span", "fn", name(p)), make("span", "at", where(p))), p);
        if (!first && p.pc === row.to.pc && p.line === row.to.line) first = [p, item];
        list.append(item);
      }
      parts.push(make("section", "", make("h4", "", "Where it stands then"), list));
    }
    if (row.notes.length) {
      const list = make("ul", "notes " + hue(row.column));
      for (const note of row.notes) list.append(link(make("li", note.kind, note.text, make("span", "at", where(note.place))), note.place));
      const more = Object.values(row.notes_left_out || {}).reduce((sum, count) => sum + count, 0);
      if (more) list.append(make("li", "", `… ${more} more`));
      parts.push(make("section", "", make("h4", "", "Events"), list));
    }
    const meets = story.conflicts.filter((c) => c.rows.includes(index));
    if (meets.length) {
      const box = make("section", "", make("h4", "", "Memory shared with other rows"));
      for (const c of meets.slice(0, 60)) {
        const line = (at, touch) => {
          const go = make("button", "goto", "row " + (at + 1));
          go.addEventListener("click", () => pick(at, true));
          const text = short(story.rows[at].column) + " " + touch.verb + (touch.atomic ? " atomically" : "") + " in " + name(touch.place) + (/\.h$/.test(touch.place.file || "") && touch.stack[1] ? " for " + name(touch.stack[1]) : "");
          return make("div", hue(story.rows[at].column), make("span", "", text), at === index ? null : go, link(make("span", "at", where(touch.place)), touch.place));
        };
        box.append(make("div", c.bug ? "share bug" : "share", make("b", "", c.what), line(c.rows[0], c.earlier), line(c.rows[1], c.later)));
      }
      if (meets.length > 60) box.append(make("p", "muted", "… and " + (meets.length - 60) + " more"));
      parts.push(box);
    }
    panel.replaceChildren(...parts);
    panel.scrollTop = 0;
    if (first) look(...first); else look(row.to, null);
  };

  const light = (index) => {
    const on = new Set();
    story.conflicts.forEach((c, at) => {
      const yes = c.rows.includes(index);
      if (yes) c.rows.forEach((row) => on.add(row));
      arcs.querySelectorAll('[data-c="' + at + '"]').forEach((node) => node.classList.toggle("on", yes));
    });
    rows.forEach((row, at) => row.classList.toggle("linked", at !== index && on.has(at)));
  };

  // Rows of those who had no part in it stay folded until somebody wants to see them.
  const folds = [];
  rows.forEach((row, at) => {
    if (!row.classList.contains("minor")) return;
    row.classList.add("away");
    if (at > 0 && rows[at - 1].classList.contains("minor")) { folds[folds.length - 1].rows.push(at); return; }
    const button = make("button", "");
    const fold = { rows: [at], node: make("div", "more", button) };
    button.addEventListener("click", () => open(fold));
    row.before(fold.node);
    folds.push(fold);
  });
  const open = (fold) => {
    fold.rows.forEach((at) => rows[at].classList.remove("away"));
    fold.node.remove();
    draw();
  };
  for (const { rows: at, node } of folds) {
    const waits = at.filter((row) => story.rows[row].folded === "device-wait");
    const who = [...new Set((waits.length ? waits : at).map((row) => short(story.rows[row].column)))].sort().join(", ");
    const what = !waits.length ? " had no part in it" : " waits for a device " + (waits.length === 1 ? "once more" : waits.length + " more times");
    const which = at.length === 1 ? "row " + (at[0] + 1) : "rows " + (at[0] + 1) + " to " + (at[at.length - 1] + 1);
    node.firstChild.textContent = "▸ " + which + ": " + who + what;
  }

  const pick = (index, scroll) => {
    if (index < 0 || index >= rows.length) return;
    const hidden = folds.find((fold) => fold.node.isConnected && fold.rows.includes(index));
    if (hidden) open(hidden);
    if (rows[picked]) { rows[picked].classList.remove("picked"); rows[picked].setAttribute("aria-selected", "false"); }
    picked = index;
    rows[index].classList.add("picked");
    rows[index].setAttribute("aria-selected", "true");
    light(index);
    show(index);
    if (scroll) { panel.classList.add("open"); rows[index].querySelector(".card").scrollIntoView({ block: "nearest", inline: "nearest" }); rows[index].focus({ preventScroll: true }); }
  };

  // An arc bends further left the more rows it spans; accesses of the bug are drawn last, on top. One of a folded row
  // ends where the row is folded; within one fold there is none.
  const draw = () => {
    const place = (at) => folds.find((fold) => fold.node.isConnected && fold.rows.includes(at))?.node || rows[at];
    const middle = (node) => node.offsetTop + Math.min(node.offsetHeight / 2, 22);
    const drawn = new Set();
    const shapes = story.conflicts.flatMap((c, at) => {
      const ends = c.rows.map(place);
      const [a, b] = ends.map(middle);
      const folded = ends.some((node, end) => node !== rows[c.rows[end]]);
      const same = `${a} ${b} ${c.bug}`;
      if (ends[0] === ends[1] || folded && drawn.has(same)) return [];
      drawn.add(same);
      const reach = Math.min(46, 14 + 5 * Math.log2(1 + c.rows[1] - c.rows[0]) + (at % 5) * 2);
      const cls = c.bug ? "bug" : "";
      const svg = (tag, attrs) => {
        const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
        for (const [key, value] of Object.entries({ ...attrs, class: cls, "data-c": at })) node.setAttribute(key, value);
        return node;
      };
      const x = 72;
      return [[c.bug, svg("path", { d: `M${x} ${a} C${x - reach} ${a}, ${x - reach} ${b}, ${x} ${b}` }), svg("circle", { cx: x, cy: a, r: 2.6 }), svg("circle", { cx: x, cy: b, r: 2.6 })]];
    });
    shapes.sort((p, q) => p[0] - q[0]);
    arcs.setAttribute("height", trace.offsetHeight);
    arcs.replaceChildren(...shapes.flatMap((shape) => shape.slice(1)));
    if (picked >= 0) light(picked);
  };

  rows.forEach((row, at) => {
    row.addEventListener("click", () => { pick(at, false); panel.classList.add("open"); });
    row.addEventListener("mouseenter", () => light(at));
    row.addEventListener("mouseleave", () => light(picked));
  });
  document.querySelectorAll("[data-row]").forEach((node) => node.addEventListener("click", () => pick(Number(node.dataset.row), true)));
  document.querySelectorAll("[data-copy]").forEach((node) => node.addEventListener("click", async () => {
    const text = document.getElementById(node.dataset.copy).textContent;
    const done = () => { node.textContent = "copied"; setTimeout(() => { node.textContent = "copy"; }, 1200); };
    try { await navigator.clipboard.writeText(text); done(); } catch {
      // A page opened from a file may not use the clipboard: select the text instead.
      const range = document.createRange();
      range.selectNodeContents(document.getElementById(node.dataset.copy));
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      if (document.execCommand("copy")) done();
    }
  }));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const to = { ArrowDown: picked + 1, j: picked + 1, ArrowUp: picked - 1, k: picked - 1, Home: 0, End: rows.length - 1, b: rows.length - 1 }[event.key];
    if (to !== undefined) { event.preventDefault(); pick(Math.max(0, Math.min(rows.length - 1, to)), true); }
    // Along the thread: the row where this one went on, or came from.
    const side = { ArrowRight: 1, l: 1, ArrowLeft: -1, h: -1 }[event.key];
    if (side) {
      for (let at = picked + side; at >= 0 && at < rows.length; at += side) {
        if (story.rows[at].column === story.rows[picked].column) { event.preventDefault(); pick(at, true); break; }
      }
    }
    if (event.key === "Escape") panel.classList.remove("open");
  });
  if (rows.length) { pick(rows.length - 1, false); draw(); new ResizeObserver(draw).observe(trace); }
})();
