// The figures. Each function draws one element from the page's data; colours come from the style sheet.
"use strict";

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const MARKS = ["circle", "square", "diamond", "triangle-up", "cross", "star"];
const REGIMES = ["search-heavy", "update-heavy", "reward-heavy"];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function faint(hex, alpha) {
  const n = parseInt(hex.slice(1), 16);
  return `rgba(${n >> 16},${(n >> 8) & 255},${n & 255},${alpha})`;
}

// Plotly reads a little markup in labels; names are shown as they are.
function label(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function look(models, name) {
  const found = models.findIndex((m) => m.name.toLowerCase() === name.toLowerCase());
  // Off the ladder: the text's own colour, because grey with crosses says that a run did not stay healthy.
  if (found < 0) return { colour: colour("ink"), dash: "solid", mark: "pentagon" };
  return { colour: colour(`m${found % 6}`), dash: DASHES[found % 6], mark: MARKS[found % 6] };
}

function frame(more) {
  const axis = { gridcolor: colour("grid"), zerolinecolor: colour("grid"), linecolor: colour("line"), automargin: true };
  const layout = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    font: { color: colour("ink"), size: 12.5, family: getComputedStyle(document.body).fontFamily },
    margin: { l: 48, r: 12, t: 30, b: 44 }, hovermode: "closest", dragmode: false,
    xaxis: { ...axis }, yaxis: { ...axis },
    hoverlabel: { bgcolor: colour("panel"), font: { color: colour("ink") }, bordercolor: colour("line") },
  };
  for (const [key, value] of Object.entries(more)) {
    layout[key] = key.endsWith("axis") ? { ...axis, ...value } : value;
  }
  return layout;
}

function draw(element, traces, layout) {
  return Plotly.react(element, traces, frame(layout), { displayModeBar: false, responsive: true });
}

// FLOPs as 1e17 and not as 100P; decades if three of them fit, else thirds of decades, else finer.
function flopsAxis(values) {
  const low = Math.min(...values) / 1.15;
  const high = Math.max(...values) * 1.15;
  let ticks = [];
  for (const steps of [[1], [1, 3], [1, 2, 5], [1, 2, 3, 5, 7]]) {
    ticks = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e += 1) for (const m of steps) ticks.push(m * 10 ** e);
    ticks = ticks.filter((t) => t >= low && t <= high);
    if (ticks.length >= 3) break;
  }
  return { type: "log", tickvals: ticks, ticktext: ticks.map(formatFlops), title: { text: "FLOPs" } };
}

// Filled faintly and edged: where bands overlap, the edges still say which is which.
function band(x, lo, hi, ink, strength = 0.1) {
  const edge = { width: 0.8, color: faint(ink, 0.45) };
  return [
    { x, y: lo, mode: "lines", line: edge, hoverinfo: "skip" },
    { x, y: hi, mode: "lines", line: edge, fill: "tonexty", fillcolor: faint(ink, strength), hoverinfo: "skip" },
  ];
}

function nearSlice(pilot, slice) {
  return pilot.flops > 0 && Math.abs(Math.log(pilot.flops / slice.budget)) <= Math.log(1.5);
}

// Runs that did not stay healthy may have fallen far off the scale: they are drawn at its edge.
function pilotPoints(data, slice, low) {
  const groups = new Map();
  for (const pilot of data.pilots) {
    const end = pilot.ends[slice.target];
    if (!end || pilot.reward !== data.reward || !nearSlice(pilot, slice)) continue;
    const key = pilot.model;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push({ pilot, value: end[0], se: end[1] });
  }
  return [...groups].map(([model, points]) => {
    const style = look(data.models, model);
    return {
      x: points.map((p) => p.pilot.shares[1]), y: points.map((p) => Math.max(p.value, low)), mode: "markers", name: label(model),
      error_y: { type: "data", array: points.map((p) => 1.645 * p.se), thickness: 1, width: 2, color: style.colour },
      marker: {
        symbol: points.map((p) => (p.pilot.status === "ok" ? style.mark : `${style.mark}-open`)), size: 9,
        color: style.colour, line: { width: 1.2, color: colour("bg") },
      },
      text: points.map((p) => `${label(model)}<br>${label(p.pilot.id)} · ${p.pilot.status}<br>${formatFlops(p.pilot.flops)} FLOPs, ${slice.target} ${p.value.toFixed(3)}`),
      hovertemplate: "%{text}, ρ %{x:.2f}<extra></extra>",
    };
  });
}

function sliceTraces(data, slice, low) {
  const traces = [];
  for (const line of slice.lines) {
    const style = look(data.models, line.model);
    traces.push(...band(line.rho, line.lo, line.hi, style.colour));
    traces.push({
      x: line.rho, y: line.mean, mode: "lines", name: label(line.model),
      line: { color: style.colour, width: 2.2, dash: style.dash },
      customdata: line.lo.map((lo, i) => [lo, line.hi[i]]),
      hovertemplate: `${label(line.model)}<br>ρ %{x:.2f}: %{y:.3f} (%{customdata[0]:.3f} to %{customdata[1]:.3f})<extra></extra>`,
    });
  }
  return traces.concat(pilotPoints(data, slice, low));
}

function drawPanels(data, target, host) {
  const slices = data.slices.filter((s) => s.target === target).sort((a, b) => a.budget - b.budget);
  const every = slices.flatMap((s) => s.lines.flatMap((l) => [...l.lo, ...l.hi]));
  const ends = data.pilots.filter((p) => p.status === "ok" && p.ends[target] && p.reward === data.reward && slices.some((s) => nearSlice(p, s))).map((p) => p.ends[target][0]);
  const all = every.concat(ends);
  const low = Math.max(0, Math.min(...all) - 0.03);
  const high = Math.min(1.01, Math.max(...all) + 0.03);
  host.style.setProperty("--columns", slices.length <= 4 ? Math.max(slices.length, 1) : 3);
  slices.forEach((slice, i) => {
    let div = host.children[i];
    if (!div) {
      div = document.createElement("div");
      div.className = "chart";
      div.setAttribute("role", "img");
      host.append(div);
    }
    const real = slice.budget === data.budget ? "the budget: " : "";
    const points = data.pilots.filter((p) => p.ends[target] && p.reward === data.reward && nearSlice(p, slice)).length;
    const pilots = points ? `, ${points} pilot${points > 1 ? "s" : ""}` : "";
    div.setAttribute("aria-label", `${target} against rho at ${formatFlops(slice.budget)} FLOPs${pilots}`);
    draw(div, sliceTraces(data, slice, low + 0.04 * (high - low)), {
      title: { text: `${real}${formatFlops(slice.budget)} FLOPs${pilots}`, font: { size: 14 }, x: 0.02, xanchor: "left" },
      xaxis: { range: [0, 1], title: { text: "update fraction ρ" } },
      yaxis: { range: [low, high], title: { text: label(target) } },
    });
  });
  while (host.children.length > slices.length) host.lastChild.remove();

}

function drawStar(data, target) {
  const slices = data.slices.filter((s) => s.target === target).sort((a, b) => a.budget - b.budget);
  const traces = [];
  data.models.forEach((model, m) => {
    const style = look(data.models, model.name);
    const mine = slices.map((s) => [s.budget, s.lines.find((l) => l.model === model.name)]).filter((p) => p[1]);
    const shift = 1.06 ** (m - (data.models.length - 1) / 2);
    traces.push({
      x: mine.map((p) => p[0] * shift), y: mine.map((p) => p[1].star.mean), mode: "lines+markers", name: label(model.name),
      line: { color: style.colour, width: 1.6, dash: style.dash }, marker: { symbol: style.mark, size: 7, color: style.colour },
      error_y: {
        type: "data", symmetric: false, array: mine.map((p) => p[1].star.hi - p[1].star.mean),
        arrayminus: mine.map((p) => p[1].star.mean - p[1].star.lo), thickness: 1.2, width: 3, color: style.colour,
      },
      hovertemplate: `${label(model.name)} alone<br>ρ* %{y:.2f}<extra></extra>`,
    });
  });
  const x = slices.map((s) => s.budget);
  traces.push(...band(x, slices.map((s) => s.star.lo), slices.map((s) => s.star.hi), colour("ink"), 0.07));
  traces.push({
    x, y: slices.map((s) => s.star.mean), mode: "lines+markers", name: "over all models",
    line: { color: colour("ink"), width: 3.5 }, marker: { size: 9, color: colour("ink") },
    hovertemplate: "over all models<br>ρ* %{y:.2f}<extra></extra>",
  });
  draw(document.getElementById("chart-rho"), traces, {
    title: { text: `ρ* for ${label(target)}`, font: { size: 14 }, x: 0.02, xanchor: "left" },
    xaxis: flopsAxis(x), yaxis: { range: [0, 1], title: { text: "ρ*" } },
  });
  const fills = { "search-heavy": "search", "update-heavy": "learning", "reward-heavy": "reward" };
  const hatch = { "search-heavy": "", "update-heavy": "/", "reward-heavy": "." };
  const bars = REGIMES.map((name) => ({
    type: "bar", name, x: slices.map((s) => formatFlops(s.budget)), y: slices.map((s) => s.regimes[name]),
    marker: { color: colour(fills[name]), pattern: { shape: hatch[name], fgcolor: colour("bg"), fillmode: "overlay", size: 7, solidity: 0.2 } },
    hovertemplate: `${name} %{y:.2f} at %{x}<extra></extra>`,
  }));
  draw(document.getElementById("chart-regime"), bars, {
    barmode: "stack", bargap: 0.25, showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    xaxis: { type: "category", title: { text: "FLOPs" } }, yaxis: { range: [0, 1], title: { text: "probability" } },
    margin: { l: 48, r: 12, t: 44, b: 44 },
  });
}

function drawSimplex(data, setting) {
  const traces = data.paths.map((path) => {
    const style = look(data.models, path.model);
    return {
      type: "scatterternary", mode: "lines", cliponaxis: false, name: label(path.model), line: { color: style.colour, width: 2.2, dash: style.dash },
      a: [path.from[1], path.to[1]], b: [path.from[0], path.to[0]], c: [path.from[2], path.to[2]],
      hoverinfo: "name",
    };
  });
  const by = new Map();
  for (const pilot of data.pilots.filter((p) => p.flops > 0)) {
    if (!by.has(pilot.model)) by.set(pilot.model, []);
    by.get(pilot.model).push(pilot);
  }
  for (const [model, pilots] of by) {
    const style = look(data.models, model);
    traces.push({
      type: "scatterternary", mode: "markers", cliponaxis: false, name: `${label(model)}, pilots`,
      a: pilots.map((p) => p.shares[1]), b: pilots.map((p) => p.shares[0]), c: pilots.map((p) => p.shares[2]),
      marker: { symbol: style.mark, size: 8, color: style.colour, opacity: 0.75, line: { width: 1, color: colour("bg") } },
      text: pilots.map((p) => `${label(p.model)}, ${p.reward}`), showlegend: false,
      hovertemplate: "%{text}<br>learning %{a:.2f}, search %{b:.2f}, reward %{c:.2f}<extra></extra>",
    });
  }
  const star = data.advice.shares;
  traces.push({
    type: "scatterternary", mode: "markers", cliponaxis: false, name: "recommended", a: [star.learning], b: [star.search], c: [star.reward],
    marker: { symbol: "star", size: 17, color: colour("ink"), line: { width: 1.5, color: colour("bg") } },
    hovertemplate: "recommended<br>learning %{a:.2f}, search %{b:.2f}, reward %{c:.2f}<extra></extra>",
  });
  if (setting) {
    traces.push({
      type: "scatterternary", mode: "markers", cliponaxis: false, name: "what if", a: [setting.learning], b: [setting.search], c: [setting.reward],
      marker: { symbol: "circle-open", size: 17, color: colour("accent"), line: { width: 3, color: colour("accent") } },
      hovertemplate: "what if<br>learning %{a:.2f}, search %{b:.2f}, reward %{c:.2f}<extra></extra>",
    });
  }
  const side = (text) => ({
    title: { text }, min: 0, gridcolor: colour("grid"), linecolor: colour("line"), tickvals: [0.2, 0.4, 0.6, 0.8],
    tickfont: { size: 11 },
  });
  draw(document.getElementById("chart-simplex"), traces, {
    ternary: { sum: 1, bgcolor: "rgba(0,0,0,0)", aaxis: side("learning ρ"), baxis: side("search σ"), caxis: side("reward φ") },
    showlegend: true, legend: { orientation: "h", y: -0.12 }, margin: { l: 40, r: 40, t: 40, b: 40 },
  });
}

// Of one reward system, or of all where there is one: native rewards of two share no scale.
function drawCurves(data, target, reward) {
  const shown = data.curves.filter((c) => c.points[target] && (reward === null || c.reward === reward));
  const many = shown.length > 40;
  const spent = (run) => run.grids[run.points[target].grid];
  const xs = shown.flatMap((run) => spent(run).filter((x) => x > 0));
  const floor = Math.min(...xs, data.budget);
  const traces = shown.map((run) => {
    const style = look(data.models, run.model);
    const points = run.points[target];
    const ok = run.status === "ok";
    return {
      x: spent(run).map((x) => Math.max(x, floor / 2)), y: points.value, mode: many ? "lines" : "lines+markers",
      line: { color: ok ? style.colour : colour("soft"), width: many ? 1.1 : 1.4, dash: ok ? style.dash : "dot" },
      marker: { size: 4, symbol: ok ? style.mark : "x", color: ok ? style.colour : colour("soft") }, opacity: many ? 0.6 : 0.85,
      text: `${label(run.model)}, ρ ${run.shares[1].toFixed(2)}, ${run.reward}<br>${label(run.id)} · ${run.status}`,
      hovertemplate: "%{text}<br>%{y:.3f} at %{x:.2e} FLOPs<extra></extra>",
    };
  });
  draw(document.getElementById("chart-curves"), traces, {
    xaxis: xs.length ? flopsAxis(xs) : { title: { text: "FLOPs" } }, yaxis: { title: { text: label(target) } },
    annotations: shown.length ? [] : [nothing(`no record${reward === null ? "" : ` under ${reward}`} has a curve of ${target}`)],
  });
}

function nothing(text) {
  return { text: label(text), showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5, font: { size: 14 } };
}

function drawCalibration(data, target) {
  const shown = data.checks.filter((c) => c.target === target);
  const kinds = [["inside its interval", true, "circle", "m1"], ["outside", false, "x", "m0"]];
  const traces = [{ x: [0, 1], y: [0, 1], mode: "lines", line: { color: colour("soft"), dash: "dot", width: 1 }, hoverinfo: "skip", showlegend: false }];
  for (const [name, covered, symbol, ink] of kinds) {
    const mine = shown.filter((c) => c.covered === covered);
    traces.push({
      x: mine.map((c) => c.mean), y: mine.map((c) => c.observed), mode: "markers", name: `${name} (${mine.length})`,
      marker: { symbol, size: 8, color: colour(ink) },
      error_x: {
        type: "data", symmetric: false, array: mine.map((c) => c.hi - c.mean), arrayminus: mine.map((c) => c.mean - c.lo),
        thickness: 1, width: 2, color: colour(ink),
      },
      text: mine.map((c) => `${label(c.model)}<br>${label(c.record)}`),
      hovertemplate: "%{text}<br>predicted %{x:.3f}, measured %{y:.3f}<extra></extra>",
    });
  }
  const every = shown.length ? shown.flatMap((c) => [c.lo, c.hi, c.observed]) : [0, 1];
  const room = 0.05 * (Math.max(...every) - Math.min(...every)) + 0.01;
  const range = [Math.max(0, Math.min(...every) - room), Math.min(1, Math.max(...every) + room)];
  draw(document.getElementById("chart-calibration"), traces, {
    xaxis: { title: { text: `predicted ${label(target)}` }, range }, yaxis: { title: { text: "measured" }, range },
    showlegend: shown.length > 0, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    annotations: shown.length ? [] : [nothing(`no run of ${target} can be left out`)],
  });
}
