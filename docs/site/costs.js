// The calculator of costs.md. Its figures are in costs.json; a test compares it with the README.
"use strict";

/** USD a month by kind, for what `costs.md` asks for. */
function monthlyCosts(figures, asked) {
  const long = asked.longTokens ? "_with_long_tokens" : "";
  const waiting = (asked.guards * asked.waitingPercent) / 100;
  const periods = Math.max(0, Math.ceil(asked.waitMinutes / asked.fallbackMinutes) - 1);
  const beats = (seconds, every) => (every > 0 ? Math.floor(seconds / every) : 0);
  const counts = [
    ["uncontended", asked.guards - waiting],
    ["waited" + long, waiting],
    ["fallback_period" + long, waiting * periods],
    ["keep_alive_heartbeat", asked.guards * beats(asked.heldSeconds, asked.keepAliveSeconds)],
    ["client", asked.clientLocks],
    ["client_heartbeat", asked.clientLocks * beats(asked.clientHeldSeconds, asked.clientLease / 3)],
  ];
  const costs = {};
  for (const [kind, price] of Object.entries(figures.usd_per_million)) {
    const units = counts.reduce((sum, [what, times]) => sum + times * figures[what][kind], 0);
    costs[kind] = (units * price) / 1e6;
  }
  return costs;
}

function showCosts(form) {
  const figures = JSON.parse(document.getElementById("cost-figures").textContent);
  const asked = {};
  for (const field of form.elements) {
    if (field.name) asked[field.name] = field.type === "checkbox" ? field.checked : Number(field.value);
  }
  const costs = monthlyCosts(figures, asked);
  const usd = (amount) => amount.toLocaleString("en-US", { style: "currency", currency: "USD" });
  for (const [kind, amount] of Object.entries(costs)) {
    form.querySelector(`output[name=${kind}]`).textContent = usd(amount);
  }
  const sum = Object.values(costs).reduce((total, amount) => total + amount, 0);
  form.querySelector("output[name=sum]").textContent = usd(sum);
}

if (typeof document !== "undefined") {
  const form = document.getElementById("cost-form");
  form.addEventListener("input", () => showCosts(form));
  showCosts(form);
}
