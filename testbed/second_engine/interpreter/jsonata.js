// Evaluates one JSONata expression a line: {"expression": …} in, {"result": …} or {"error": …} out.
// The functions that Step Functions adds to JSONata are here; those that LocalStack writes in
// JSONata itself ($partition, $range, $randomSeeded) are in the expression.
const { createInterface } = require("node:readline");
const { randomUUID } = require("node:crypto");
const jsonata = require("jsonata");

async function evaluate(text) {
  const expression = jsonata(text);
  expression.registerFunction("uuid", () => randomUUID(), "<:s>");
  expression.registerFunction("parse", (json) => JSON.parse(json), "<s-:x>");
  const result = await expression.evaluate(undefined);
  return result === undefined ? null : result; // LocalStack asks by $exists which of them it was
}

createInterface({ input: process.stdin }).on("line", async (line) => {
  let answer;
  try {
    answer = { result: await evaluate(JSON.parse(line).expression) };
  } catch (error) {
    answer = { error: String(error.message || error.code || error) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
});
