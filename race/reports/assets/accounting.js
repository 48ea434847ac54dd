// The arithmetic of race.allocation and race.hardware, for settings a page may ask about. Pure functions, no page.
//
// costs   search (per group), reward, update, old, reference (per sample), all (old log-probs for every sample)
// recipe  prompts P, group G; S = P G samples per step; a = samples trained on per sample generated
// FLOPs are numbers, exact below 2^53 and good to sixteen digits above: shown are three.
"use strict";

const MIN_RATIO = 1 / 16;
const MAX_RATIO = 16;
const PHASES = ["search", "learning", "reward"];

function overhead(costs, recipe) {
  return costs.search / recipe.group + costs.reward;
}

function slopes(costs) {
  const distinct = costs.reference + (costs.all ? costs.old : 0);
  const again = costs.all ? 0 : costs.old;
  return { distinct, again };
}

// Learning FLOPs per generated sample at update ratio a.
function learning(costs, a) {
  const { distinct, again } = slopes(costs);
  return costs.update * a + again * Math.min(Math.max(a - 1, 0), 1) + distinct * Math.min(a, 1);
}

function rhoOf(costs, recipe, a) {
  const spent = learning(costs, a);
  return spent / (spent + overhead(costs, recipe));
}

function rhoRange(costs, recipe) {
  return [rhoOf(costs, recipe, MIN_RATIO), rhoOf(costs, recipe, MAX_RATIO)];
}

// The update ratio that spends the fraction rho on learning; not limited to what recipes allow.
function updateRatio(costs, recipe, rho) {
  const { distinct, again } = slopes(costs);
  const target = (rho / (1 - rho)) * overhead(costs, recipe);
  const first = costs.update + distinct;
  const second = costs.update + again;
  if (target <= first) return target / first;
  if (target <= first + second) return 1 + (target - first) / second;
  return 2 + (target - first - second) / costs.update;
}

// Halves go to the even neighbour, as in Python.
function roundEven(x) {
  const low = Math.floor(x);
  const rest = x - low;
  if (rest !== 0.5) return Math.round(x);
  return low % 2 === 0 ? low : low + 1;
}

function step(costs, recipe, prompts, trained) {
  const { distinct, again } = slopes(costs);
  const generated = prompts * recipe.group;
  const reused = Math.min(Math.max(trained - generated, 0), generated);
  return {
    search: prompts * costs.search,
    learning: costs.update * trained + again * reused + distinct * Math.min(trained, generated),
    reward: costs.reward * generated,
  };
}

function total(flops) {
  return flops.search + flops.learning + flops.reward;
}

// Whole steps and one smaller one within the budget; null when it does not pay for one step.
function sizeRun(costs, recipe, ratio, budget) {
  const generated = recipe.prompts * recipe.group;
  const least = Math.ceil(MIN_RATIO * generated);
  const most = Math.floor(MAX_RATIO * generated);
  const trained = Math.min(Math.max(Math.max(1, roundEven(ratio * generated)), least), most);
  const a = trained / generated;
  const each = step(costs, recipe, recipe.prompts, trained);
  let steps = Math.floor(budget / total(each));
  while (steps > 0 && steps * total(each) > budget) steps -= 1;
  if (steps < 1) return null;
  const spent = {};
  for (const phase of PHASES) spent[phase] = steps * each[phase];
  let last = 0;
  let flops = spent;
  for (let prompts = recipe.prompts - 1; prompts >= 1; prompts -= 1) {
    const part = step(costs, recipe, prompts, Math.max(1, Math.floor(a * prompts * recipe.group)));
    if (total(spent) + total(part) <= budget) {
      last = prompts;
      flops = {};
      for (const phase of PHASES) flops[phase] = spent[phase] + part[phase];
      break;
    }
  }
  const sum = total(flops);
  const shares = {};
  for (const phase of PHASES) shares[phase] = flops[phase] / sum;
  return { ratio: a, steps, last, flops, total: sum, shares, samples: steps * generated + last * recipe.group };
}

function times(x, y) {
  return { lo: x.lo * y.lo, point: x.point * y.point, hi: x.hi * y.hi };
}

function plus(x, y) {
  return { lo: x.lo + y.lo, point: x.point + y.point, hi: x.hi + y.hi };
}

// GPU-hours, wall hours, dollars (null without a price) and kWh, each as lo, point, hi.
function hardwareCost(flops, gpu, count, assumed) {
  let hours = { lo: 0, point: 0, hi: 0 };
  let kwh = { lo: 0, point: 0, hi: 0 };
  for (const phase of PHASES) {
    const mfu = assumed.utilisation[phase];
    const full = flops[phase] / gpu.peak / 3600;
    const took = { lo: full / mfu.hi, point: full / mfu.point, hi: full / mfu.lo };
    const power = times(assumed.draw[phase], assumed.pue);
    hours = plus(hours, took);
    kwh = plus(kwh, times(times(took, power), { lo: gpu.watts / 1000, point: gpu.watts / 1000, hi: gpu.watts / 1000 }));
  }
  const wall = { lo: hours.lo / count, point: hours.point / count, hi: hours.hi / count };
  return { hours, wall, dollars: gpu.price === null ? null : times(hours, gpu.price), kwh };
}

// Three significant digits the way race prints FLOPs: 1e18, 9.94e17.
function formatFlops(flops) {
  if (flops === 0) return "0";
  const [mantissa, exponent] = flops.toExponential(2).split("e");
  return `${Number(mantissa)}e${Number(exponent)}`;
}

// Three significant digits, without an exponent where people would not write one.
function three(x) {
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e6 || size < 1e-3) return formatFlops(x);
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Number(size.toPrecision(3)))));
  return Number(x.toPrecision(3)).toLocaleString("en-US", {
    minimumFractionDigits: digits, maximumFractionDigits: digits,
  });
}

if (typeof module === "object") {
  module.exports = { hardwareCost, rhoRange, sizeRun, updateRatio, formatFlops, three };
}
