// The page: reads the data, draws the figures, answers what-if questions. No network, no storage.
"use strict";

const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function fill(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text, disabled]) => {
    const option = new Option(text, value, value === chosen, value === chosen);
    option.disabled = Boolean(disabled);
    return option;
  }));
}

function floats(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

function millions(params) {
  if (params >= 1e9) return `${three(params / 1e9)}B`;
  return params >= 1e6 ? `${three(params / 1e6)}M` : `${three(params / 1e3)}K`;
}

// ---------------------------------------------------------------- what if

class WhatIf {
  constructor(data) {
    this.data = data;
    this.grid = data.whatif;
    for (const name of ["mean", "lo", "hi", "collapse"]) this[name] = floats(this.grid[name]);
    this.setup();
    this.recommend();
  }

  index(target, variant, model, budget, rho) {
    const g = this.grid;
    return (((target * g.variants.length + variant) * g.models.length + model) * g.budgets.length + budget) * g.rhos.length + rho;
  }

  setup() {
    const g = this.grid;
    fill(byId("w-model"), g.models.map((m, i) => [String(i), `${m.name} (${millions(m.params)})`]));
    fill(byId("w-reward"), [...new Set(g.variants.map((v) => v.reward))].map((r) => [r, r]));
    fill(byId("w-budget"), g.budgets.map((b, i) => [String(i), formatFlops(b.flops)]));
    fill(byId("w-target"), g.targets.map((t, i) => [String(i), t]));
    fill(byId("w-gpu"), this.data.hardware.gpus.map((d, i) => [String(i), d.name]));
    const usual = this.data.hardware.gpus.findIndex((d) => d.name === "H100-SXM");
    byId("w-gpu").value = String(Math.max(usual, 0));
    byId("w-rho").max = String(g.rhos.length - 1);
    for (const id of ["w-model", "w-budget", "w-target", "w-gpu", "w-scorer"]) byId(id).addEventListener("change", () => this.update());
    byId("w-reward").addEventListener("change", () => { this.scorers(); this.update(); });
    for (const id of ["w-rho", "w-count"]) byId(id).addEventListener("input", () => this.update());
    byId("w-best").addEventListener("click", () => this.goToBest());
    byId("w-reset").addEventListener("click", () => { this.recommend(); this.update(); });
    byId("controls").addEventListener("submit", (event) => event.preventDefault());
  }

  scorers(preferred) {
    const reward = byId("w-reward").value;
    const mine = this.grid.variants.map((v, i) => [v, i]).filter(([v]) => v.reward === reward);
    const learned = mine[0][0].scorer !== null;
    const names = mine.map(([v, i]) => [String(i), learned ? `${v.scorer} (${millions(v.params)})` : "rules: no model"]);
    fill(byId("w-scorer"), names, preferred === undefined ? names[0][0] : String(preferred));
    byId("w-scorer").disabled = !learned;
  }

  recommend() {
    const { data, grid } = this;
    byId("w-model").value = String(Math.max(0, grid.models.findIndex((m) => m.name === data.advice.model)));
    byId("w-reward").value = data.reward;
    this.scorers();
    byId("w-budget").value = String(grid.budgets.findIndex((b) => b.flops === data.budget));
    byId("w-target").value = String(Math.max(0, grid.targets.indexOf(data.target)));
    this.nearest(data.advice.rho);
  }

  // The listed update fraction nearest to rho that can be run.
  nearest(rho) {
    const s = this.setting();
    const can = this.grid.rhos.map((_, q) => q).filter((q) => Number.isFinite(this.mean[this.index(s.target, s.variant, s.model, s.budget, q)]));
    const among = can.length ? can : this.grid.rhos.map((_, q) => q);
    const best = among.reduce((a, b) => (Math.abs(this.grid.rhos[b] - rho) < Math.abs(this.grid.rhos[a] - rho) ? b : a));
    byId("w-rho").value = String(best);
  }

  setting() {
    const read = (id) => Number(byId(id).value);
    return { model: read("w-model"), variant: read("w-scorer"), budget: read("w-budget"), target: read("w-target"), rho: read("w-rho") };
  }

  best(s) {
    let top = null;
    for (let m = 0; m < this.grid.models.length; m += 1) {
      for (let q = 0; q < this.grid.rhos.length; q += 1) {
        const value = this.mean[this.index(s.target, s.variant, m, s.budget, q)];
        if (Number.isFinite(value) && (top === null || value > top.value)) top = { model: m, rho: q, value };
      }
    }
    return top;
  }

  goToBest() {
    const top = this.best(this.setting());
    if (top === null) return;
    byId("w-model").value = String(top.model);
    byId("w-rho").value = String(top.rho);
    this.update();
  }

  update() {
    const begun = performance.now();
    const s = this.setting();
    const g = this.grid;
    const variant = g.variants[s.variant];
    const costs = variant.costs[s.model];
    const budget = g.budgets[s.budget].flops;
    const rho = g.rhos[s.rho];
    const name = g.models[s.model].name;
    const target = g.targets[s.target];
    byId("w-rho-out").textContent = rho.toFixed(2);
    byId("w-rho").setAttribute("aria-valuetext", `rho ${rho.toFixed(2)}`);
    const [low, high] = rhoRange(costs, variant);
    byId("w-range").textContent = `${name} under ${variant.reward} reaches ${(Math.ceil(low * 1000) / 1000).toFixed(3)} to ${(Math.floor(high * 1000) / 1000).toFixed(3)}`;
    const at = this.index(s.target, s.variant, s.model, s.budget, s.rho);
    const found = Number.isFinite(this.mean[at]);
    const ratio = updateRatio(costs, variant, rho);
    byId("answer").dataset.found = String(found);
    byId("a-what").textContent = `${target}, expected:`;
    byId("a-problem").hidden = found;
    const top = this.best(s);
    byId("a-best").textContent = top === null ? "" : `Best listed at ${formatFlops(budget)} FLOPs under this reward: ${g.models[top.model].name} at ρ ${g.rhos[top.rho].toFixed(2)}, ${three(top.value)}.`;
    const flags = variant.scorer === null ? "" : ` --reward-model ${variant.scorer}`;
    const gpu = this.data.hardware.gpus[Number(byId("w-gpu").value)];
    const count = Math.max(1, Math.round(Number(byId("w-count").value)) || 1);
    byId("a-command").textContent = `race query ${quoted(this.data.surrogate)} --budget ${g.budgets[s.budget].text} --reward ${variant.reward}${flags} --model ${name} --rho ${rho} --target ${target} --gpu ${gpu.name} --gpus ${count}`;
    if (found) this.show({ s, at, variant, costs, budget, rho, ratio, name, target, gpu, count });
    else this.refuse(rho, ratio, low, high, budget, name);
    this.chart(s, found, at, rho);
    window.clearTimeout(this.later);
    this.later = window.setTimeout(() => drawSimplex(this.data, this.shares), 150);
    byId("answer").dataset.ms = (performance.now() - begun).toFixed(1);
  }

  show({ s, at, variant, costs, budget, rho, ratio, name, target, gpu, count }) {
    const [mean, lo, hi] = [this.mean[at], this.lo[at], this.hi[at]];
    byId("a-value").textContent = three(mean);
    byId("a-interval").textContent = `${Math.round(this.grid.level * 100)} %: ${three(lo)} to ${three(hi)}`;
    const risk = this.collapse[at % this.collapse.length];
    byId("a-collapse").textContent = `probability ${risk.toFixed(2)} that such a run does not stay healthy; the value is that of one that does`;
    byId("a-collapse").classList.toggle("warn", risk >= 0.1);
    byId("a-span").style.left = `${100 * lo}%`;
    byId("a-span").style.width = `${100 * (hi - lo)}%`;
    byId("a-tick").style.left = `${100 * mean}%`;
    const plan = sizeRun(costs, variant, ratio, budget);
    this.shares = plan.shares;
    this.split(plan.shares);
    const percent = (x) => `${three(100 * x)} %`;
    byId("a-shares").textContent = PHASES.map((p) => `${p} ${percent(plan.shares[p])}`).join(", ");
    const last = plan.last ? ` (+ a last one of ${plan.last} prompt${plan.last === 1 ? "" : "s"})` : "";
    byId("a-recipe").textContent = `${plan.steps.toLocaleString("en-US")} step${plan.steps === 1 ? "" : "s"} of ${variant.prompts} prompts × ${variant.group} rollouts${last}, ${variant.lengths[0]} + ${variant.lengths[1]} tokens, update ratio a = ${three(plan.ratio)}`;
    byId("a-flops").textContent = `${formatFlops(plan.total)} (${three((100 * plan.total) / budget)} % of the budget): ${PHASES.map((p) => `${p} ${formatFlops(plan.flops[p])}`).join(", ")}`;
    const cost = hardwareCost(plan.flops, gpu, count, this.data.hardware);
    const range = (r) => `${three(r.point)} (${three(r.lo)} to ${three(r.hi)})`;
    byId("a-hours").textContent = range(cost.hours);
    byId("a-wall").textContent = `${range(cost.wall)} on ${count} × ${gpu.name}`;
    byId("a-dollars").textContent = cost.dollars === null ? "no dated price known for this GPU" : range(cost.dollars);
    byId("a-kwh").textContent = range(cost.kwh);
    const scored = variant.scorer === null ? "" : ` scored by ${variant.scorer}`;
    byId("a-sentence").textContent = `At ${formatFlops(budget)} FLOPs with reward ${variant.reward}${scored}, ${name} at rho ${rho.toFixed(2)} is expected to reach ${target} ${three(mean)} (${Math.round(this.grid.level * 100)} % interval ${three(lo)} to ${three(hi)}); ${PHASES.map((p) => `${percent(plan.shares[p])} ${p}`).join(", ")}; about ${three(cost.hours.point)} ${gpu.name} hours.`;
  }

  refuse(rho, ratio, low, high, budget, name) {
    const reach = rho < low || rho > high;
    byId("a-problem").textContent = reach
      ? `ρ = ${rho.toFixed(2)} needs an update ratio of ${three(ratio)}; a recipe can have 1/16 to 16, which here is ρ from ${low.toFixed(3)} to ${high.toFixed(3)}.`
      : `${formatFlops(budget)} FLOPs do not pay for one step of ${name} at this ρ: choose a larger budget.`;
    this.shares = null;
    byId("a-collapse").classList.remove("warn");
    byId("a-value").textContent = "–";
    byId("a-interval").textContent = "cannot be run";
    byId("a-span").style.width = "0";
    byId("a-tick").style.left = "-99%";
    byId("a-split").replaceChildren();
    for (const id of ["collapse", "shares", "recipe", "flops", "hours", "wall", "dollars", "kwh", "sentence"]) byId(`a-${id}`).textContent = "–";
  }

  split(shares) {
    byId("a-split").replaceChildren(...PHASES.map((phase) => {
      const part = document.createElement("div");
      part.className = phase;
      part.style.flex = `${shares[phase]} 1 0`;
      if (shares[phase] === 0) part.style.display = "none";
      const text = document.createElement("span");
      text.textContent = `${phase} ${(100 * shares[phase]).toFixed(0)} %`;
      part.append(text);
      return part;
    }));
    byId("a-split").setAttribute("aria-label", PHASES.map((p) => `${p} ${(100 * shares[p]).toFixed(0)} %`).join(", "));
  }

  chart(s, found, at, rho) {
    const g = this.grid;
    const traces = [];
    const read = (array, m) => g.rhos.map((_, q) => {
      const v = array[this.index(s.target, s.variant, m, s.budget, q)];
      return Number.isFinite(v) ? v : null;
    });
    const keep = (xs) => g.rhos.map((r, q) => [r, xs[q]]).filter((p) => p[1] !== null);
    const [low, high] = [keep(read(this.lo, s.model)), keep(read(this.hi, s.model))];
    const mine = look(this.data.models, g.models[s.model].name);
    traces.push(...band(low.map((p) => p[0]), low.map((p) => p[1]), high.map((p) => p[1]), mine.colour, 0.16));
    g.models.forEach((model, m) => {
      const style = look(this.data.models, model.name);
      traces.push({
        x: g.rhos, y: read(this.mean, m), mode: "lines+markers", name: label(model.name),
        line: { color: style.colour, width: m === s.model ? 3 : 1.6, dash: style.dash },
        marker: { size: m === s.model ? 6 : 4, symbol: style.mark, color: style.colour },
        hovertemplate: `${label(model.name)}<br>ρ %{x:.2f}: %{y:.3f}<extra></extra>`,
      });
    });
    if (found) {
      traces.push({
        x: [rho], y: [this.mean[at]], mode: "markers", hoverinfo: "skip",
        marker: { size: 17, symbol: "circle-open", color: colour("accent"), line: { width: 3, color: colour("accent") } },
      });
    }
    draw(byId("chart-whatif"), traces, {
      xaxis: { range: [0, 1], title: { text: "update fraction ρ" } }, yaxis: { title: { text: label(g.targets[s.target]) } },
      margin: { l: 48, r: 8, t: 8, b: 40 },
    });
  }
}

function quoted(path) {
  return /^[\w./~@%+:=-]+$/.test(path) ? path : `'${path.replace(/'/g, "'\\''")}'`;
}

// ---------------------------------------------------------------- figures

function legend(list) {
  list.replaceChildren(...DATA.models.map((model, i) => {
    const item = document.createElement("li");
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("width", "34");
    svg.setAttribute("height", "10");
    svg.setAttribute("aria-hidden", "true");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    const dash = { solid: "", dash: "8 5", dot: "3 3", dashdot: "8 4 2 4", longdash: "14 4", longdashdot: "14 4 2 4" }[DASHES[i % 6]];
    for (const [key, value] of Object.entries({ x1: 0, x2: 34, y1: 5, y2: 5, "stroke-width": 3, "stroke-dasharray": dash })) line.setAttribute(key, value);
    line.style.stroke = `var(--m${i % 6})`;
    svg.append(line);
    item.append(svg, `${model.name} (${millions(model.params)})`);
    return item;
  }));
}

function starTable(target) {
  const slices = DATA.slices.filter((s) => s.target === target).sort((a, b) => a.budget - b.budget);
  const range = (r) => `${r.mean.toFixed(2)} (${r.lo.toFixed(2)} to ${r.hi.toFixed(2)})`;
  const row = (cells, tag, kind) => {
    const tr = document.createElement("tr");
    if (kind) tr.className = kind;
    tr.append(...cells.map((cell) => {
      const td = document.createElement(tag);
      td.textContent = cell;
      if (tag === "th") td.scope = "col";
      return td;
    }));
    return tr;
  };
  const rows = slices.flatMap((s) => {
    const odds = (regimes) => Object.entries(regimes).filter((e) => e[1] >= 0.005).sort((a, b) => b[1] - a[1])
      .map(([name, p]) => `${name} ${p.toFixed(2)}`).join(", ");
    const all = row([formatFlops(s.budget), "all models", range(s.star), "", odds(s.regimes)], "td", "lead-row");
    const each = DATA.models.map((model) => {
      const line = s.lines.find((l) => l.model === model.name);
      return line
        ? row(["", model.name, range(line.star), line.probability.toFixed(2), odds(line.regimes)], "td")
        : row(["", model.name, "the budget is below one step", "", ""], "td");
    });
    return [all, ...each];
  });
  const thead = document.createElement("thead");
  thead.append(row(["FLOPs", "Optimum over", "ρ* (90 %)", "P(best)", "Regime"], "th"));
  const tbody = document.createElement("tbody");
  tbody.append(...rows);
  byId("star-table").replaceChildren(thead, tbody);
}

function figures() {
  const target = byId("shown").value;
  drawPanels(DATA, target, byId("panels"));
  drawStar(DATA, target);
  starTable(target);
  const chooser = byId("curves-reward");
  drawCurves(DATA, target, chooser === null ? null : chooser.value);
  drawCalibration(DATA, target);
}

function copyButtons() {
  for (const button of document.querySelectorAll("button[data-copy]")) {
    const said = button.textContent;
    button.addEventListener("click", async () => {
      const source = byId(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(source.textContent);
        button.textContent = "Copied";
      } catch {
        const range = document.createRange();
        range.selectNodeContents(source);
        window.getSelection().removeAllRanges();
        window.getSelection().addRange(range);
        button.textContent = "Selected: press Ctrl+C";
      }
      window.setTimeout(() => { button.textContent = said; }, 2000);
    });
  }
}

document.querySelectorAll(".legend").forEach(legend);
byId("shown").addEventListener("change", figures);
const ofCurves = byId("curves-reward");
if (ofCurves !== null) ofCurves.addEventListener("change", figures);
const whatIf = DATA.whatif === null ? null : new WhatIf(DATA);
function everything() {
  figures();
  if (whatIf === null) drawSimplex(DATA, null);
  else whatIf.update();
}
everything();
if (whatIf !== null) drawSimplex(DATA, whatIf.shares);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", everything);
copyButtons();
document.documentElement.dataset.ready = "true";
