"use strict";
// Draws two programs on one scale. Everything that is a name goes to the page as text.
const memory = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const GROUPS = data.groups, SIDES = ["before", "after"];
  const MARGIN = {left: 64, right: 10, top: 20, bottom: 34}, HEIGHT = 360, ROW = 14, LEAST = 0.75, STRIP = 15, LISTED = 10;
  let colours = {}, wanted = "", resting = false, picked = null;
  const get = id => document.getElementById(id);

  function human(bytes) {
    for (const unit of ["B", "KiB", "MiB", "GiB"]) {
      if (Math.abs(bytes) < 1024 || unit === "GiB") return unit === "B" ? bytes + " B" : bytes.toFixed(2) + " " + unit;
      bytes /= 1024;
    }
  }
  const short = line => line.replace(/File "(?:[^"]*[\/\\])?([^"\/\\]*)", line (\d+)(?:, in (\S+))?/g,
    (_, file, number, name) => file + ":" + number + (name ? " in " + name : ""));

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    for (const name of [...GROUPS, "resting", "ink", "quiet", "line", "mark", "loop", "band"]) colours[name] = style.getPropertyValue("--" + name).trim();
  }

  // Each is a number more than the one before it, or [number, times].
  function unpacked(packed) {
    const column = [];
    let last = 0;
    for (const run of packed) {
      const [more, times] = Array.isArray(run) ? run : [run, 1];
      for (let i = 0; i < times; i++) column.push(last += more);
    }
    return column;
  }

  // One program: bars column by column, as they come from the report.
  class Side {
    constructor(key) {
      Object.assign(this, data.sides[key]);
      for (const [name, packed] of Object.entries(this.columns)) this[name] = unpacked(packed);
      this.key = key;
      this.names = this.names.map(n => data.names[n]);
      this.madeAt = this.makers;
      this.makers = this.makers.map(step => step < 0 ? "outside" : data.kinds[this.kinds[step]] + " (step " + step + ")");
      this.steps = this.bytes.length;
      this.count = this.names.length;
      this.order = [...Array(this.count).keys()].sort((a, b) => this.group[a] - this.group[b] || this.first[a] - this.first[b] || a - b);
      this.stamp = new Int32Array(this.owner.reduce((a, b) => Math.max(a, b), 0) + 1).fill(-1);  // by owner: the step at which it was last met
      this.view = [0, Math.max(1, this.steps)];
      this.top = null;  // of the axis, if zoomed
      this.shade = this.names.map(name => { let h = 0; for (let i = 0; i < name.length; i++) h = (h * 31 + name.charCodeAt(i)) | 0; return Math.abs(h) % 3; });
      // Bars that begin in each stretch of steps or before, and last into it.
      const stretch = this.stretch = Math.max(1, Math.ceil(this.steps / 64));
      this.index = Array.from({length: Math.ceil(this.steps / stretch) || 1}, () => []);
      for (const bar of this.order)
        for (let s = Math.floor(this.first[bar] / stretch); s <= Math.floor(this.last[bar] / stretch); s++) this.index[s].push(bar);
      this.scopeOf = new Int32Array(this.steps);  // runs of equal ones come as the first step of each
      this.scopes.forEach(([first, text], i) => this.scopeOf.fill(text, first, (this.scopes[i + 1] || [this.steps])[0]));
      this.levels = [0, 1].map(depth => this.runs(depth)).filter(runs => runs.length);
      this.peak = this.bytes.reduce((best, size, i) => size > this.bytes[best] ? i : best, 0);
    }
    // Stretches of steps in one scope of names, down to its level `depth`.
    runs(depth) {
      const found = [];
      for (let step = 0, run = {}; step < this.steps; step++) {
        const parts = this.scope(step).split("/"), path = parts.slice(0, depth + 1).join("/");
        if (run.path !== path) found.push(run = {path, name: parts[depth] || "", first: step});
        run.last = step;
      }
      return found.filter(run => run.name);
    }
    // Where the op of a step was made: the user's own frame, then who called it, then what it called.
    frames(step) { return step < 0 ? [] : [this.opLines[step], ...data.callers[this.opCallers[step]]].map(i => data.texts[i]).filter(f => f); }
    scope(step) { return data.texts[this.scopeOf[step]] || ""; }
    // The bars at a step, from the bottom up: by group, then by age. Several bars of one memory may meet there: it is counted once.
    found(step) {
      if (step < 0 || step >= this.steps) return [];
      const {stamp, owner, first, last} = this, found = [];
      stamp.fill(-1);
      for (const bar of this.index[Math.floor(step / this.stretch)]) {
        if (first[bar] > step || last[bar] < step || stamp[owner[bar]] === step) continue;
        stamp[owner[bar]] = step;
        found.push(bar);
      }
      return found;
    }
    // Bars add up to the line; should they not, what is missing stands below all.
    base(step, found) {
      let rest = this.bytes[step] || 0;
      for (const bar of found) rest -= this.sizes[bar];
      return (resting ? data.resting : 0) + Math.max(0, rest);
    }
    stack(step) {
      const found = this.found(step);
      let low = this.base(step, found);
      return found.map(bar => ({bar, low, high: low += this.sizes[bar]}));
    }
    fullest(from, to) {
      let best = from;
      for (let i = from + 1; i < to; i++) if (this.bytes[i] > this.bytes[best]) best = i;
      return best;
    }
    head(step) {
      const scope = this.scope(step);
      return "step " + step + ": " + data.kinds[this.kinds[step]] + (scope ? " of " + scope : "") + ", " + human(this.bytes[step]) + " alive";
    }
    about(bar) {
      const trips = this.counts[bar] > 1 ? " (" + this.counts[bar] + " trips)" : "";
      return this.names[bar] + ": " + human(this.sizes[bar]) + trips + ", " + GROUPS[this.group[bar]] + "\nmade by " + this.makers[bar] +
        "\nsteps " + this.first[bar] + " to " + this.last[bar] + ", memory of " + data.names[this.storages[bar]];
    }
    line(bar) { return data.texts[this.lines[bar] === undefined ? this.opLines[this.madeAt[bar]] : this.lines[bar]] || ""; }
    matches(bar) { return !wanted || this.names[bar].toLowerCase().includes(wanted); }
  }
  const sides = Object.fromEntries(SIDES.map(key => [key, new Side(key)]));
  const highest = () => (Math.max(...SIDES.map(k => sides[k].bytes.reduce((a, b) => Math.max(a, b), 0))) + (resting ? data.resting : 0)) * 1.08 || 1;

  function sized(canvas, height) {
    const ratio = window.devicePixelRatio || 1, width = canvas.parentElement.clientWidth || 300;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio); canvas.style.height = height + "px";
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "11px system-ui, sans-serif";
    return [pen, width];
  }
  // What fits into `room`: the whole text, or its two ends.
  function fitting(pen, text, room) {
    if (pen.measureText(text).width <= room) return text;
    let left = text.length - 1;
    const cut = () => text.slice(0, Math.ceil(left / 2)) + "…" + text.slice(text.length - Math.floor(left / 2));
    while (left > 2 && pen.measureText(cut()).width > room) left--;
    return cut();
  }
  function ticks(low, high, most) {
    const raw = (high - low) / Math.max(1, most), power = Math.pow(10, Math.floor(Math.log10(raw || 1)));
    const step = Math.max(1, [1, 2, 5, 10].map(m => m * power).find(m => m >= raw) || 10 * power), found = [];
    for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
    return found;
  }

  class Area {
    constructor(side) {
      this.side = side;
      this.canvas = get(side.key + "-area");
      this.plotted = {bars: 0};
      interactive(this);
    }
    // Below the plot: a strip for each level of scopes, then the axis.
    get strip() { return this.side.levels.length * STRIP; }
    get inner() { return [MARGIN.left, this.width - MARGIN.right, MARGIN.top, HEIGHT - MARGIN.bottom]; }
    x(step) { const [l, r] = this.inner, [a, b] = this.side.view; return l + (step - a) / (b - a) * (r - l); }
    step(x) { const [l, r] = this.inner, [a, b] = this.side.view; return a + (x - l) / (r - l) * (b - a); }
    y(bytes) { const [, , t, b] = this.inner; return b - bytes / this.scale * (b - t); }
    draw() {
      const side = this.side, [pen, width] = sized(this.canvas, HEIGHT + this.strip);
      this.width = width;
      this.scale = side.top || highest();
      const [l, r, t, b] = this.inner, drawn = new Uint8Array(side.count);
      this.dims = wanted ? side.names.map((_, bar) => !side.matches(bar)) : new Uint8Array(side.count);
      this.axes(pen, l, r, t, b);
      pen.save();
      pen.beginPath(); pen.rect(l, t - 14, r - l, b - t + 14); pen.clip();
      this.loops(pen, t, b);
      const columns = Math.min(Math.ceil(r - l), Math.ceil((side.view[1] - side.view[0])) || 1);
      for (let c = 0; c < columns; c++) {
        const from = Math.floor(side.view[0] + c / columns * (side.view[1] - side.view[0]));
        const to = Math.max(from + 1, Math.floor(side.view[0] + (c + 1) / columns * (side.view[1] - side.view[0])));
        if (from >= side.steps) break;
        this.column(pen, side.fullest(Math.max(0, from), Math.min(to, side.steps)), this.x(from), this.x(to), drawn);
      }
      this.outline(pen, columns);
      pen.restore();
      this.scopes(pen, l, r, t, b);
      this.plotted = {bars: drawn.reduce((sum, one) => sum + one, 0), scale: this.scale};
    }
    column(pen, step, x0, x1, drawn) {
      const side = this.side, width = Math.max(0.6, x1 - x0 + 0.4), found = side.found(step);
      const base = resting ? data.resting : 0, low = side.base(step, found);
      if (base) { pen.fillStyle = colours.resting; pen.fillRect(x0, this.y(base), width, this.y(0) - this.y(base)); }
      if (low > base) { pen.fillStyle = colours.other; pen.fillRect(x0, this.y(low), width, this.y(base) - this.y(low)); }
      // Those below a pixel are drawn together, in the colour of their group.
      let pending = null;
      const flush = () => {
        if (!pending) return;
        pen.globalAlpha = pending.dim ? 0.15 : 0.8; pen.fillStyle = colours[GROUPS[pending.group]];
        pen.fillRect(x0, this.y(pending.high), width, this.y(pending.low) - this.y(pending.high));
        pending = null;
      };
      const least = LEAST / (this.y(0) - this.y(1));
      let high = low;
      for (const bar of found) {
        const bottom = high, group = side.group[bar], dim = this.dims[bar];
        high += side.sizes[bar];
        drawn[bar] = 1;
        if (side.sizes[bar] < least) {
          if (pending && (pending.group !== group || pending.dim !== dim)) flush();
          pending = pending || {group, dim, low: bottom}; pending.high = high;
          continue;
        }
        flush();
        const tall = this.y(bottom) - this.y(high);
        pen.globalAlpha = dim ? 0.15 : [1, 0.86, 0.72][side.shade[bar]];
        pen.fillStyle = picked && picked.name === side.names[bar] ? colours.mark : colours[GROUPS[group]];
        pen.fillRect(x0, this.y(high), width, tall > 3 ? tall - 0.6 : tall);
      }
      flush();
      pen.globalAlpha = 1;
    }
    outline(pen, columns) {
      const side = this.side, base = resting ? data.resting : 0, [a, b] = side.view;
      pen.strokeStyle = colours.ink; pen.lineWidth = 1; pen.beginPath();
      for (let c = 0; c < columns; c++) {
        const from = Math.floor(a + c / columns * (b - a)), to = Math.max(from + 1, Math.floor(a + (c + 1) / columns * (b - a)));
        if (from >= side.steps) break;
        const y = Math.round(this.y(base + side.bytes[side.fullest(from, Math.min(to, side.steps))])) + 0.5;
        if (c) pen.lineTo(this.x(from), y); else pen.moveTo(this.x(from), y);
        pen.lineTo(this.x(to), y);
      }
      pen.stroke();
      if (side.steps && side.peak >= a && side.peak <= b) {
        const [l, r] = this.inner, x = Math.max(l + 4, Math.min(r - 4, this.x(side.peak + 0.5))), y = this.y(base + side.bytes[side.peak]);
        pen.fillStyle = colours.ink; pen.beginPath(); pen.moveTo(x, y); pen.lineTo(x - 4, y - 7); pen.lineTo(x + 4, y - 7); pen.fill();
        const peak = "peak " + human(base + side.bytes[side.peak]), room = Math.max(x - l, r - x) - 7;
        const text = [peak + ", step " + side.peak, peak].find(text => pen.measureText(text).width <= room) || "peak";
        pen.textAlign = x - l > r - x ? "right" : "left";
        pen.fillText(text, x + (x - l > r - x ? -7 : 7), Math.max(10, y - 3));
      }
    }
    // Bands of layers: a strip below for each level, and a line up through the plot where one of the first level begins that is named.
    scopes(pen, l, r, t, b) {
      pen.save();
      pen.beginPath(); pen.rect(l, t, r - l, b - t + this.strip + 1); pen.clip();
      pen.textAlign = "left";
      this.side.levels.forEach((runs, level) => runs.forEach((run, i) => {
        const x0 = Math.max(l, this.x(run.first)), x1 = Math.min(r, this.x(run.last + 1)), y = b + 1 + level * STRIP;
        if (x1 <= x0) return;
        pen.fillStyle = colours.band; pen.globalAlpha = i % 2 ? 0.55 : 1;
        pen.fillRect(x0, y, Math.max(0.5, x1 - x0 - (x1 - x0 > 4 ? 1 : 0)), STRIP - 2);
        pen.globalAlpha = 1;
        const room = x1 - x0 - 6, wide = pen.measureText(run.name).width;
        if (room > 12 && (wide <= room || room > 30)) {
          if (!level) { pen.fillStyle = colours.band; pen.fillRect(x0, t, 1, b - t); }
          pen.fillStyle = colours.ink;
          pen.fillText(fitting(pen, run.name, room), x0 + 3, y + STRIP - 5);
        }
      }));
      pen.restore();
    }
    scopeAt(x, y) {
      const level = Math.floor((y - (HEIGHT - MARGIN.bottom)) / STRIP), step = Math.floor(this.step(x));
      return (this.side.levels[level] || []).find(run => run.first <= step && step <= run.last);
    }
    loops(pen, t, b) {
      pen.textAlign = "left";
      for (const band of this.side.bands) {
        const x0 = this.x(band.first), x1 = this.x(band.last + 1);
        pen.fillStyle = colours.loop; pen.fillRect(x0, t, x1 - x0, b - t);
        pen.fillStyle = colours.quiet;
        const from = Math.max(x0, MARGIN.left), room = Math.min(x1, this.width) - from - 6;
        const label = [band.label, band.label.split(": ").pop()].find(text => pen.measureText(text).width <= room);
        if (label) pen.fillText(label, from + 3, t - 4);
      }
    }
    axes(pen, l, r, t, b) {
      pen.strokeStyle = colours.line; pen.fillStyle = colours.quiet; pen.lineWidth = 1;
      pen.textAlign = "right";
      const unit = this.scale >= 2 ** 30 ? 2 ** 30 : this.scale >= 2 ** 20 ? 2 ** 20 : this.scale >= 1024 ? 1024 : 1;
      const name = {1: "B", 1024: "KiB", 1048576: "MiB", 1073741824: "GiB"}[unit];
      const most = this.scale / unit, tenth = Math.pow(10, Math.floor(Math.log10(most || 1)) - 1), gap = [1, 2, 5, 10, 20].map(m => m * tenth).find(g => most / g <= 9);
      for (let v = 0; v <= most; v += gap) {
        const y = this.y(v * unit);
        pen.beginPath(); pen.moveTo(l, y); pen.lineTo(r, y); pen.stroke();
        pen.fillText(+v.toPrecision(6) + " " + name, l - 5, y + 4);
      }
      pen.textAlign = "center";
      for (const s of ticks(this.side.view[0], this.side.view[1], Math.max(2, (r - l) / 90))) {
        const half = pen.measureText(s).width / 2;
        pen.fillText(s, Math.min(this.x(s + 0.5), this.width - half), b + this.strip + 14);
      }
      pen.fillText("step, in the order of execution", (l + r) / 2, b + this.strip + 29);
    }
    at(x, y) {
      const step = Math.floor(this.step(x)), bytes = (HEIGHT - MARGIN.bottom - y) / (HEIGHT - MARGIN.bottom - MARGIN.top) * this.scale;
      if (step < 0 || step >= this.side.steps || bytes < 0) return null;
      const hit = this.side.stack(step).find(p => p.low <= bytes && bytes < p.high);
      return {step, bar: hit ? hit.bar : -1};
    }
    tell(x, y) {
      const found = this.at(x, y), side = this.side, run = this.scopeAt(x, y);
      if (run) return run.path + "\nsteps " + run.first + " to " + run.last + ", at most " + human(side.bytes[side.fullest(run.first, run.last + 1)]) + " alive";
      if (!found) return "";
      const head = side.head(found.step);
      return head + (found.bar < 0 ? "\n" + short(data.texts[side.opLines[found.step]]) : "\n" + side.about(found.bar) + "\n" + short(side.line(found.bar)));
    }
    click(x, y) {
      const found = this.at(x, y);
      if (found) detail(this.side, found.step, found.bar);
    }
  }

  class Lanes {
    constructor(side) {
      this.side = side;
      this.canvas = get(side.key + "-lanes");
      this.box = this.canvas.parentElement;
      const largest = new Map(), first = new Map();
      this.titles = new Map();
      side.owner.forEach((owner, i) => {
        largest.set(owner, Math.max(largest.get(owner) || 0, side.sizes[i]));
        first.set(owner, Math.min(first.has(owner) ? first.get(owner) : Infinity, side.first[i]));
        this.titles.set(owner, data.names[side.storages[i]] + (GROUPS[side.group[i]] === "kept" ? ", other trips" : ""));
      });
      this.rows = [...largest.keys()].sort((a, b) => largest.get(b) - largest.get(a) || first.get(a) - first.get(b) || a - b);
      this.bars = new Map(this.rows.map(row => [row, []]));
      for (const bar of side.order) this.bars.get(side.owner[bar]).push(bar);
      this.height = Math.min(300, this.rows.length * ROW + 4);
      this.box.style.height = this.height + "px";
      this.box.lastElementChild.style.height = Math.max(0, this.rows.length * ROW - this.height + 4) + "px";
      this.box.addEventListener("scroll", () => this.draw());
      interactive(this);
    }
    x(step) { const [a, b] = this.side.view; return this.left + (step - a) / (b - a) * (this.width - this.left - MARGIN.right); }
    step(x) { const [a, b] = this.side.view; return a + (x - this.left) / (this.width - this.left - MARGIN.right) * (b - a); }
    draw() {
      const side = this.side, [pen, width] = sized(this.canvas, this.height);
      this.width = width; this.left = Math.min(240, Math.max(MARGIN.left, width * 0.4));
      const from = Math.floor(this.box.scrollTop / ROW), to = Math.min(this.rows.length, from + Math.ceil(this.height / ROW) + 1);
      for (let row = from; row < to; row++) {
        const y = row * ROW - this.box.scrollTop;
        pen.fillStyle = colours.quiet; pen.textAlign = "left";
        pen.fillText(fitting(pen, this.titles.get(this.rows[row]), this.left - 8), 4, y + 11);
        for (const bar of this.bars.get(this.rows[row])) {
          const x0 = Math.max(this.left, this.x(side.first[bar])), x1 = Math.min(width, this.x(side.last[bar] + 1));
          if (x1 < x0) continue;
          pen.globalAlpha = side.matches(bar) ? [1, 0.86, 0.72][side.shade[bar]] : 0.12;
          pen.fillStyle = picked && picked.name === side.names[bar] ? colours.mark : colours[GROUPS[side.group[bar]]];
          pen.fillRect(x0, y + 1, Math.max(1, x1 - x0 - 0.5), ROW - 3);
        }
        pen.globalAlpha = 1;
      }
    }
    at(x, y) {
      const row = this.rows[Math.floor((y + this.box.scrollTop) / ROW)], step = Math.floor(this.step(x));
      const bar = row === undefined ? undefined : this.bars.get(row).find(b => this.side.first[b] <= step && step <= this.side.last[b]);
      return bar === undefined ? null : {step, bar};
    }
    tell(x, y) { const found = this.at(x, y); return found ? this.side.about(found.bar) + "\n" + short(this.side.line(found.bar)) : ""; }
    click(x, y) { const found = this.at(x, y); if (found) detail(this.side, found.step, found.bar); }
  }

  // What is allocated and freed around a step, and the variable that was pointed at.
  function detail(side, step, bar) {
    picked = bar < 0 ? null : {name: side.names[bar]};
    const named = found => found.slice(0, 12).map(b => side.names[b] + " (" + human(side.sizes[b]) + ")").join(", ") + (found.length > 12 ? " and " + (found.length - 12) + " more" : "") || "nothing";
    const at = side.index[Math.floor(step / side.stretch)];
    const lines = [side.head(step), data.texts[side.opLines[step]],
      "begins here: " + named(at.filter(b => side.first[b] === step)), "ends here: " + named(at.filter(b => side.last[b] === step))];
    if (bar >= 0) lines.unshift(side.about(bar), side.line(bar), "");
    const made = bar >= 0 ? side.madeAt[bar] : step, frames = side.frames(made), calls = document.createElement("details");
    calls.append(Object.assign(document.createElement("summary"), {textContent: "Call stack of " + (bar >= 0 ? side.names[bar] : "step " + step) + ", your own frame first (" + frames.length + ")"}),
      Object.assign(document.createElement("pre"), {textContent: frames.join("\n")}));
    get(side.key + "-detail").replaceChildren(document.createTextNode(lines.join("\n")), ...(frames.length ? [calls] : []));
    redraw();
  }

  function interactive(chart) {
    const canvas = chart.canvas, side = chart.side, touches = new Map(), tip = get("tip");
    const place = event => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    const zoom = (around, factor) => {
      const [a, b] = side.view, width = Math.min(side.steps, Math.max(4, (b - a) * factor)), share = (around - a) / (b - a);
      const start = Math.min(Math.max(0, around - share * width), Math.max(0, side.steps - width));
      side.view = [start, start + Math.max(1, width)]; later();
    };
    const shift = steps => {
      const [a, b] = side.view, start = Math.min(Math.max(0, a - steps), Math.max(0, side.steps - (b - a)));
      side.view = [start, start + (b - a)]; later();
    };
    canvas.addEventListener("wheel", event => {
      if (chart instanceof Lanes && !event.ctrlKey) return;
      event.preventDefault();
      const factor = Math.exp(event.deltaY * 0.002), [x] = place(event);
      if (event.shiftKey) { side.top = Math.min(highest(), Math.max(1, (side.top || highest()) * Math.exp((event.deltaY || event.deltaX) * 0.002))); later(); }
      else zoom(chart.step(x), factor);
    }, {passive: false});
    canvas.addEventListener("pointerdown", event => { touches.set(event.pointerId, [...place(event), ...place(event)]); });
    canvas.addEventListener("pointermove", event => {
      const [x, y] = place(event), old = touches.get(event.pointerId);
      if (old && touches.size === 2) {
        const other = [...touches.entries()].find(([id]) => id !== event.pointerId)[1];
        const before = Math.abs(old[0] - other[0]), now = Math.abs(x - other[0]);
        if (before > 4 && now > 4) zoom(chart.step((x + other[0]) / 2), before / now);
      } else if (old) shift(chart.step(x) - chart.step(old[0]));
      if (old) touches.set(event.pointerId, [x, y, old[2], old[3]]);
      const text = chart.tell(x, y);
      tip.textContent = text; tip.style.display = text ? "block" : "none";
      tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 6)) + "px";
      tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 6) + "px";
    });
    const up = event => {
      const old = touches.get(event.pointerId), [x, y] = place(event);
      touches.delete(event.pointerId);
      if (old && Math.abs(x - old[2]) + Math.abs(y - old[3]) < 5) chart.click(x, y);
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", event => touches.delete(event.pointerId));
    canvas.addEventListener("pointerleave", event => { tip.style.display = "none"; touches.delete(event.pointerId); });
    canvas.addEventListener("dblclick", () => { side.view = [0, Math.max(1, side.steps)]; side.top = null; later(); });
  }

  const charts = [];
  let waiting = false;
  function redraw() { for (const chart of charts) if (chart.canvas.offsetParent !== null) chart.draw(); }
  function later() { if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; redraw(); }); } }

  function show(which) {
    for (const key of SIDES) get(key).classList.toggle("hidden", which !== "both" && which !== key);
    get("sides").classList.toggle("two", which === "both");
    for (const button of document.querySelectorAll(".sides button")) button.setAttribute("aria-pressed", button.dataset.side === which);
    redraw();
  }
  function reveal(key, bar) {
    const side = sides[key], width = Math.max(20, 3 * (side.last[bar] - side.first[bar] + 1));
    const start = Math.max(0, Math.min(side.first[bar] - (width - side.last[bar] + side.first[bar]) / 2, side.steps - width));
    side.view = [start, start + Math.min(width, side.steps)];
    if (get(key).classList.contains("hidden")) show(key);
    const lanes = charts.find(c => c instanceof Lanes && c.side === side);
    lanes.box.scrollTop = Math.max(0, lanes.rows.indexOf(side.owner[bar]) * ROW - lanes.height / 2);
    detail(side, side.first[bar], bar);
    get(key).scrollIntoView({block: "nearest"});
  }
  function search(text) {
    wanted = text.toLowerCase();
    const found = SIDES.map(key => wanted ? sides[key].order.filter(bar => sides[key].matches(bar)) : []);
    const all = found[0].length + found[1].length;
    const rows = SIDES.flatMap((key, i) => found[i].sort((a, b) => sides[key].sizes[b] - sides[key].sizes[a]).slice(0, LISTED).map(bar => {
      const side = sides[key], made = [side.makers[bar], short(side.line(bar))].filter(part => part).join(", ");
      return [key, bar, [key, side.names[bar], human(side.sizes[bar]).replace(" ", "\u00a0"), made]];
    }));
    get("found").textContent = wanted ? all + " found" + (rows.length < all ? ", the largest are listed" : "") : "";
    get("hits").replaceChildren(...rows.map(([key, bar, cells]) => {
      const row = document.createElement("tr");
      row.append(...cells.map(text => Object.assign(document.createElement("td"), {textContent: text})));
      row.addEventListener("click", () => reveal(key, bar));
      return row;
    }));
    later();
  }

  readColours();
  for (const key of SIDES) charts.push(new Area(sides[key]), new Lanes(sides[key]));
  for (const item of document.querySelectorAll("i[data-group]")) item.style.background = "var(--" + item.dataset.group + ")";
  for (const button of document.querySelectorAll(".sides button")) button.addEventListener("click", () => show(button.dataset.side));
  get("search").addEventListener("input", event => search(event.target.value));
  get("resting").addEventListener("change", event => { resting = event.target.checked; redraw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); redraw(); });
  addEventListener("resize", later);
  show("both");
  const chart = (kind, key) => charts.find(c => c instanceof kind && c.side.key === key);
  return {sides, fitting, area: key => chart(Area, key), lanes: key => chart(Lanes, key)};
})();
