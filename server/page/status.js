// Reads /metrics again and again, and shows the differences.
"use strict";

const PLOT_SECONDS = 300, WINDOW_SECONDS = 60, NOW_SECONDS = 10, LEAST_PAUSE_MS = 2000, MOST_PAUSE_MS = 10000;
const FAMILY = "decomposek_request_duration_seconds_bucket";
const OUTCOMES = ["ok", "client_error", "busy", "server_error", "cancelled"];
let history = [];
let points = [];
let modelCount = 0;

const at = (id) => document.getElementById(id);

function put(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

// "name{a=\"b\"} 1 # exemplar" -> ["name", {a: "b"}, 1]; null for comments.
function readLine(line) {
  if (line === "" || line[0] === "#") return null;
  const brace = line.indexOf("{");
  const end = brace < 0 ? line.indexOf(" ") : line.indexOf("} ") + 1;
  const labels = {};
  if (brace >= 0) {
    for (const part of line.slice(brace + 1, end - 1).matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[part[1]] = part[2];
  }
  return [line.slice(0, brace < 0 ? end : brace), labels, Number(line.slice(end + 1).split(" ")[0])];
}

// One scrape: plain series by their text, and what is summed over labels.
function readScrape(text) {
  const scrape = { seconds: performance.now() / 1000, plain: new Map(), cells: new Map(), models: new Map(), requests: 0, errors: 0, rows: 0 };
  for (const line of text.split("\n")) {
    const read = readLine(line);
    if (read === null) continue;
    const [name, labels, value] = read;
    if (name === FAMILY) {
      const key = labels.shape + " " + labels.t_bucket;
      let cell = scrape.cells.get(key);
      if (!cell) scrape.cells.set(key, cell = { shape: labels.shape, rows: Number(labels.t_bucket), bounds: [], counts: [], last: -1, transport: "" });
      if (cell.transport !== labels.transport) { cell.transport = labels.transport; cell.last = -1; }
      cell.last++;
      cell.bounds[cell.last] = labels.le === "+Inf" ? Infinity : Number(labels.le);
      cell.counts[cell.last] = (cell.counts[cell.last] || 0) + value;
    } else if (name === "decomposek_requests_total" || name === "decomposek_rows_total") {
      let model = scrape.models.get(labels.model);
      if (!model) scrape.models.set(labels.model, model = {});
      model[labels.outcome || "rows"] = value;
      if (!labels.outcome) scrape.rows += value;
      else scrape.requests += value;
      if (labels.outcome && labels.outcome !== "ok") scrape.errors += value;
    } else if (!labels.le && !labels.shape) {
      scrape.plain.set(name, value);
    }
  }
  return scrape;
}

// counts are cumulative; the same line between bounds as histogram_quantile of Prometheus.
function quantile(bounds, counts, q) {
  const total = counts[counts.length - 1];
  if (!total) return NaN;
  const rank = q * total;
  for (let i = 0; i < bounds.length - 1; i++) {
    const below = i > 0 ? counts[i - 1] : 0;
    if (counts[i] > below && counts[i] >= rank) {
      const low = i > 0 ? bounds[i - 1] : 0;
      return low + (bounds[i] - low) * (rank - below) / (counts[i] - below);
    }
  }
  return bounds[bounds.length - 2];
}

function inMicroseconds(seconds) {
  if (!Number.isFinite(seconds)) return "\u2013";
  const tenths = Math.floor(seconds * 1e7 + 0.5);
  return tenths < 1000 ? Math.floor(tenths / 10) + "." + tenths % 10 : String(Math.floor(seconds * 1e6 + 0.5));
}

const inShort = (value) => !Number.isFinite(value) ? "\u2013" : value === 0 ? "0" : value < 100 ? value.toFixed(1) : value.toFixed(0);
const ratio = (a, b) => b > 0 ? a / b : NaN;

// The newest scrape that is at least `seconds` old, else the oldest one.
function before(seconds) {
  const now = history[history.length - 1];
  for (let i = history.length - 2; i >= 0; i--) if (now.seconds - history[i].seconds >= seconds) return history[i];
  return history[0];
}

function difference(cell, old) {
  return old ? cell.counts.map((count, i) => count - old.counts[i]) : cell.counts;
}

// All shapes and buckets together, between two scrapes.
function differenceOfAll(now, old) {
  let bounds = [], counts = [];
  for (const [key, cell] of now.cells) {
    bounds = cell.bounds;
    difference(cell, old.cells.get(key)).forEach((count, i) => { counts[i] = (counts[i] || 0) + count; });
  }
  return [bounds, counts];
}

function showLatency(now) {
  const old = before(WINDOW_SECONDS);
  const elapsed = now.seconds - old.seconds;
  const rows = [];
  for (const [key, cell] of now.cells) {
    const total = cell.counts[cell.counts.length - 1];
    if (total === 0) continue;
    const recent = old === now ? [0] : difference(cell, old.cells.get(key));
    const row = document.createElement("tr");
    row.dataset.cell = key;
    [cell.shape, cell.rows, total, inMicroseconds(quantile(cell.bounds, cell.counts, 0.5)), inMicroseconds(quantile(cell.bounds, cell.counts, 0.99)),
      inShort(elapsed > 0 ? recent[recent.length - 1] / elapsed : NaN), inMicroseconds(quantile(cell.bounds, recent, 0.5)), inMicroseconds(quantile(cell.bounds, recent, 0.99)),
    ].forEach((value, i) => {
      const cellElement = document.createElement("td");
      if (i > 0) cellElement.className = "n";
      cellElement.textContent = String(value);
      row.append(cellElement);
    });
    rows.push(row);
  }
  at("latency").replaceChildren(...rows);
}

function showModels(now) {
  for (const row of at("models").children) {
    const model = now.models.get(row.dataset.model);
    if (!model) continue;
    for (const name of ["rows", ...OUTCOMES]) put(row.querySelector(`[data-of=${name}]`), String(model[name]));
  }
  modelCount ||= now.models.size;
  put(at("news"), modelCount === now.models.size ? "" : "Models have changed: load this page again.");
}

function plot(id, names, unit) {
  const svg = at(id), last = points[points.length - 1].seconds;
  const span = Math.min(PLOT_SECONDS, Math.max(30, last - points[0].seconds));
  let most = 0;
  for (const point of points) for (const name of names) if (point[name] > most) most = point[name];
  const paths = names.map((name, index) => {
    let text = "", pen = "M";
    for (const point of points) {
      if (!Number.isFinite(point[name])) { pen = "M"; continue; }
      const x = 300 - (last - point.seconds) / span * 300, y = 78 - (most > 0 ? point[name] / most * 74 : 0);
      text += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
      pen = "L";
    }
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", text);
    if (index > 0) path.setAttribute("class", "second");
    return path;
  });
  svg.replaceChildren(...paths);
  put(svg.parentElement.querySelector("b"), "most " + unit(most));
}

function showNow(now) {
  const old = before(NOW_SECONDS), previous = history.length > 1 ? history[history.length - 2] : now;
  const elapsed = now.seconds - old.seconds;
  const [bounds, counts] = differenceOfAll(now, old);
  put(at("now-requests"), inShort(elapsed > 0 ? (now.requests - old.requests) / elapsed : NaN));
  put(at("now-rows"), inShort(elapsed > 0 ? (now.rows - old.rows) / elapsed : NaN));
  put(at("now-p50"), inMicroseconds(quantile(bounds, counts, 0.5)));
  put(at("now-p99"), inMicroseconds(quantile(bounds, counts, 0.99)));
  put(at("launch-jobs"), inShort(ratio(now.plain.get("decomposek_batch_jobs_sum"), now.plain.get("decomposek_batch_jobs_count"))));
  put(at("launch-rows"), inShort(ratio(now.plain.get("decomposek_batch_rows_sum"), now.plain.get("decomposek_batch_rows_count"))));
  put(at("all-requests"), String(now.requests));
  put(at("all-errors"), String(now.errors));
  const step = now.seconds - previous.seconds;
  if (step <= 0) return;
  const [stepBounds, stepCounts] = differenceOfAll(now, previous);
  const launched = (name) => now.plain.get(name) - previous.plain.get(name);
  points.push({
    seconds: now.seconds, requests: (now.requests - previous.requests) / step, errors: (now.errors - previous.errors) / step,
    p50: quantile(stepBounds, stepCounts, 0.5), p99: quantile(stepBounds, stepCounts, 0.99),
    queue: now.plain.get("decomposek_queue_depth"), inFlight: now.plain.get("decomposek_in_flight_requests"),
    jobs: ratio(launched("decomposek_batch_jobs_sum"), launched("decomposek_batch_jobs_count")),
  });
  points = points.filter((point) => now.seconds - point.seconds <= PLOT_SECONDS);
  plot("plot-rate", ["requests", "errors"], inShort);
  plot("plot-time", ["p50", "p99"], inMicroseconds);
  plot("plot-queue", ["queue", "inFlight"], inShort);
  plot("plot-batch", ["jobs"], inShort);
}

function show(now) {
  const previous = history[history.length - 1];
  if (previous && previous.plain.get("process_start_time_seconds") !== now.plain.get("process_start_time_seconds")) {
    history = []; // another process answers: its counters began anew
    points = [];
  }
  history.push(now);
  history = history.filter((scrape) => now.seconds - scrape.seconds <= WINDOW_SECONDS + 10);
  for (const element of document.querySelectorAll("[data-series]")) {
    const value = now.plain.get(element.dataset.series);
    if (value !== undefined) put(element, String(value));
  }
  const isReady = now.plain.get("decomposek_ready") === 1;
  put(at("state"), isReady ? "ready" : "not ready");
  at("state").className = isReady ? "good" : "bad";
  showNow(now);
  showLatency(now);
  showModels(now);
}

async function poll() {
  const began = performance.now();
  if (!document.hidden) {
    try {
      const reply = await fetch("/metrics", { headers: { Accept: "text/plain" }, cache: "no-store", signal: AbortSignal.timeout(10000) });
      if (!reply.ok) throw new Error("status " + reply.status);
      show(readScrape(await reply.text()));
    } catch (error) {
      put(at("state"), "no answer");
      at("state").className = "bad";
      put(at("news"), "/metrics: " + error.message);
    }
  }
  // A page with many models costs more to make and to read: then it is asked for less often.
  setTimeout(poll, Math.min(MOST_PAUSE_MS, Math.max(LEAST_PAUSE_MS, 20 * (performance.now() - began))));
}

document.documentElement.classList.add("has-script");
poll();
