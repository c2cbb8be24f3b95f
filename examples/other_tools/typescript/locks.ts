// Holds a lock of Fairlock in TypeScript, over the functions of the service. Node 22.18 or newer runs it as it is.

import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";

/** Invokes a function of the service. Throws an error with the name of the service's error class. */
export type Call = (operation: "acquire" | "heartbeat" | "release", request: object) => Promise<any>;

export interface Lock {
  readonly lockName: string;
  /** Grows with each grant: write with it as a condition, so that a former holder is refused. */
  readonly fencingToken: number;
  /** Aborted when the lock is lost, or may be. Give it to whatever takes a signal. */
  readonly lost: AbortSignal;
}

export interface Options {
  /** How long the lock outlives a process that died, 1 to 43200. */
  leaseSeconds?: number;
  /** The longest wait; zero does not wait. */
  maxWaitSeconds?: number;
  limit?: number;
  /** A label for people. */
  ownerName?: string;
  sleep?: (milliseconds: number, signal?: AbortSignal) => Promise<unknown>;
}

export class LockWaitTimeout extends Error {
  override name = "LockWaitTimeout";
}

/** Runs the work while it holds the lock, and releases the lock whatever comes of it. */
export async function withLock<T>(
  call: Call,
  lockName: string,
  work: (lock: Lock) => Promise<T>,
  { leaseSeconds = 30, maxWaitSeconds = 120, limit = 1, ownerName = "", sleep = later }: Options = {},
): Promise<T> {
  // One acquisition: every call of it has this id, so each may be repeated when its answer was lost.
  const owner = { lock_name: lockName, owner_id: randomUUID() };
  const request = { ...owner, owner_name: ownerName, lease_seconds: leaseSeconds, limit };
  const done = new AbortController();
  const lost = new AbortController();
  try {
    const { fencingToken, safeUntil } = await acquire(call, request, maxWaitSeconds, sleep);
    const renewing = renew(call, owner, { leaseSeconds, safeUntil, done: done.signal, lost, sleep });
    renewing.catch(() => lost.abort());
    return await work({ lockName, fencingToken, lost: lost.signal });
  } finally {
    done.abort();
    // "queue" says that this owner may still be in the queue, even if its ticket was lost.
    await release(call, { ...owner, queue: true }, sleep).catch(() => undefined);
  }
}

async function acquire(
  call: Call,
  request: { lock_name: string; lease_seconds: number },
  maxWaitSeconds: number,
  sleep: NonNullable<Options["sleep"]>,
): Promise<{ fencingToken: number; safeUntil: number }> {
  const deadline = performance.now() + maxWaitSeconds * 1000;
  let ticket: number | undefined; // finds the place in the queue when the caller asks again
  let behindMs = 0; // how far this machine's clock is behind AWS's, as far as the service has told
  for (let isFirst = true; ; isFirst = false) {
    const asked = performance.now();
    const place = maxWaitSeconds === 0 ? {} : { queue: true, ...(ticket && { ticket }) };
    // So that a copy of this call that is delivered late takes no lock for a caller that has gone on.
    const called = { entered_at_ms: Date.now() + behindMs };
    const answer = await answered(() => call("acquire", { ...request, ...place, ...called }));
    if (answer?.reason === "ASK_AGAIN") behindMs = answer.entered_at_ms - Date.now();
    // A later call may be told a grant that began before it. Half of the lease is left then.
    const safeMs = request.lease_seconds * (isFirst ? 1000 : 500);
    if (answer?.acquired) return { fencingToken: answer.fencing_token, safeUntil: asked + safeMs };
    ticket = answer?.ticket ?? ticket;
    const leftMs = deadline - performance.now();
    if (leftMs <= 0 || answer?.reason === "ALREADY_RELEASED") {
      if (answer) throw new LockWaitTimeout(`lock ${request.lock_name}: ${answer.reason}`);
      throw new Error(`lock ${request.lock_name}: the service did not answer`);
    }
    await sleep(Math.min((answer?.retry_after_seconds ?? 1) * 1000, leftMs));
  }
}

interface Lease {
  leaseSeconds: number;
  /** By `performance.now()`: until then the lock is held for certain. */
  safeUntil: number;
  done: AbortSignal;
  lost: AbortController;
  sleep: NonNullable<Options["sleep"]>;
}

async function renew(
  call: Call,
  owner: object,
  { leaseSeconds, safeUntil, done, lost, sleep }: Lease,
): Promise<void> {
  const leaseMs = leaseSeconds * 1000;
  let pauseMs = (safeUntil - performance.now()) / 3;
  for (;;) {
    await sleep(pauseMs, done).catch(() => undefined);
    if (done.aborted) return;
    const asked = performance.now(); // the new lease ends one lease after this, or later
    const told = new AbortController();
    const answer = await Promise.race([
      answered(() => call("heartbeat", { ...owner, lease_seconds: leaseSeconds })),
      sleep(safeUntil - asked, told.signal).catch(() => undefined),
    ]);
    told.abort();
    if (answer?.renewed) safeUntil = asked + leaseMs;
    if (answer?.renewed === false || performance.now() >= safeUntil) return lost.abort();
    pauseMs = answer?.renewed ? leaseMs / 3 : Math.min(1000, leaseMs / 10);
  }
}

async function release(call: Call, request: object, sleep: NonNullable<Options["sleep"]>): Promise<void> {
  for (const pauseMs of [200, 1000, 0]) {
    if (await answered(() => call("release", request))) return;
    await sleep(pauseMs);
  }
  // Never in place of the result or the error of the work: the lock ends with its lease.
}

/** The answer, or undefined if no one knows it: the same call may be made again. */
async function answered(invoke: () => Promise<any>): Promise<any> {
  try {
    return await invoke();
  } catch (error) {
    if (["InvalidRequest", "LockStoreMisconfigured", "LockItemMalformed"].includes((error as Error).name)) throw error;
    return undefined;
  }
}

async function later(milliseconds: number, signal?: AbortSignal): Promise<void> {
  await pause(milliseconds, undefined, { signal });
}
