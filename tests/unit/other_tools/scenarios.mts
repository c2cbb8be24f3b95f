// Runs the TypeScript example against functions that answer by a script, and prints what happened.

import { InvokeCommand, LambdaClient } from "@aws-sdk/client-lambda"; // a stand-in, see the test
import { lockFunctions } from "./functions.ts";
import { withLock } from "./locks.ts";

const GRANT = { acquired: true, fencing_token: 41 };
const HELD = { acquired: false, reason: "HELD", retry_after_seconds: 2 };
const QUEUED = { acquired: false, reason: "QUEUED", ticket: 7, retry_after_seconds: 2 };
const DONE = { released: true };
const LOST = { renewed: false, reason: "NOT_HELD" };

/** The answers come in their order; a text is the name of an error. Another call has no answer. */
function scripted(answers: Record<string, unknown[]>) {
  const calls: [string, Record<string, unknown>][] = [];
  const call = async (operation: string, request: object) => {
    calls.push([operation, request as Record<string, unknown>]);
    const answer = answers[operation]?.shift() ?? "LockStoreUnavailable";
    if (typeof answer === "string") throw Object.assign(new Error(answer), { name: answer });
    return answer;
  };
  return { calls, call };
}

async function run(answers: Record<string, unknown[]>, work: (lock: any) => Promise<unknown>, options = {}) {
  const { calls, call } = scripted(answers);
  const pauses: number[] = [];
  const sleep = async (milliseconds: number, signal?: AbortSignal) => {
    if (signal === undefined) pauses.push(milliseconds);
    else await new Promise((resolve) => setTimeout(resolve, 1));
  };
  const ended = await withLock(call, "customer/7", work, { sleep, ...options }).then(
    (result) => ({ result }),
    (error) => ({ error: error.name, message: error.message }),
  );
  const owners = new Set(calls.map(([, request]) => request["owner_id"]));
  return { ...ended, calls, pauses, owners: owners.size };
}

const lost = (lock: any) => new Promise((resolve) => lock.lost.addEventListener("abort", () => resolve("lost")));
const told = async (lock: any) => lock.fencingToken;

const sent: unknown[] = [];
const client = new LambdaClient({
  answer: (command: InvokeCommand) => {
    sent.push(command.input);
    return command.input.FunctionName === "release-arn" ? { errorType: "InvalidRequest", errorMessage: "no" } : GRANT;
  },
});
const invoke = lockFunctions({ acquire: "acquire-arn", heartbeat: "heartbeat-arn", release: "release-arn" }, client);

console.log(JSON.stringify({
  waits: await run({ acquire: ["NetworkError", QUEUED, QUEUED, GRANT], release: [DONE] }, told),
  skips: await run({ acquire: [HELD], release: [DONE] }, told, { maxWaitSeconds: 0 }),
  mistake: await run({ acquire: ["InvalidRequest"], release: ["InvalidRequest"] }, told),
  loses: await run({ acquire: [GRANT], heartbeat: [LOST], release: [DONE] }, lost),
  unanswered: await run({ acquire: [GRANT], release: [DONE] }, lost, { leaseSeconds: 0.05 }),
  fails: await run({ acquire: [GRANT] }, async () => { throw new RangeError("declined"); }),
  invoked: [await invoke("acquire", { a: 1 }), await invoke("release", {}).catch((error) => error.name), sent],
}));
