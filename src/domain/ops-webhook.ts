// What a webhook asks for: an ops run to queue, or nothing. Reads GitHub's push and deployment events as they
// are, and otherwise an object with the fields of queueOpsRun. The caller has checked the signature.

import { isObject } from './json.js';
import { DEFAULT_MAX_ATTEMPTS, STALE_ACTIONS, type StaleAction } from './ops-run.js';

export interface WebhookCall {
  /** X-GitHub-Event, or null when the caller is not GitHub. */
  readonly githubEvent: string | null;
  readonly body: unknown;
  /** From the webhook's own URL: what the body does not say, and the one ref to listen to. */
  readonly project: string | null;
  readonly env: string | null;
  readonly ref: string | null;
}

export interface WantedRun {
  readonly projectId: string;
  readonly env: string;
  readonly gitSha: string | null;
  readonly gitRef: string | null;
  readonly metadata: unknown;
  readonly priority: number;
  readonly onStale: StaleAction;
  readonly maxAttempts: number;
  readonly idempotencyKey: string | null;
}

export type WebhookReading =
  | { readonly kind: 'run'; readonly run: WantedRun }
  | { readonly kind: 'ignored'; readonly reason: string }
  | { readonly kind: 'fault'; readonly fault: string };

const DEFAULT_LABEL = 'default';

export function readWebhook(call: WebhookCall): WebhookReading {
  if (!isObject(call.body)) return { kind: 'fault', fault: 'The body must be a JSON object.' };
  switch (call.githubEvent) {
    case null:
      return readPlain(call, call.body);
    case 'push':
      return readPush(call, call.body);
    case 'deployment':
      return readDeployment(call, call.body);
    default:
      return { kind: 'ignored', reason: `GitHub's ${call.githubEvent} queues nothing.` };
  }
}

function readPush(call: WebhookCall, body: JsonObject): WebhookReading {
  if (body['deleted'] === true) return { kind: 'ignored', reason: 'The ref was deleted.' };
  const commit = objectAt(body, 'head_commit');
  return wanted(call, {
    projectId: repositoryOf(body),
    env: null,
    gitSha: textAt(body, 'after'),
    gitRef: textAt(body, 'ref'),
    metadata: {
      trigger: 'github.push',
      author: textAt(objectAt(commit, 'author'), 'email') ?? textAt(objectAt(body, 'pusher'), 'name'),
      message: textAt(commit, 'message'),
      url: textAt(body, 'compare'),
    },
  });
}

function readDeployment(call: WebhookCall, body: JsonObject): WebhookReading {
  const deployment = objectAt(body, 'deployment');
  return wanted(call, {
    projectId: repositoryOf(body),
    env: textAt(deployment, 'environment'),
    gitSha: textAt(deployment, 'sha'),
    gitRef: textAt(deployment, 'ref'),
    metadata: {
      trigger: 'github.deployment',
      author: textAt(objectAt(deployment, 'creator'), 'login'),
      message: textAt(deployment, 'description'),
      url: textAt(deployment, 'url'),
    },
  });
}

function readPlain(call: WebhookCall, body: JsonObject): WebhookReading {
  const wrong = ['projectId', 'env', 'gitSha', 'gitRef', 'idempotencyKey'].find((name) => {
    const value = body[name] ?? '';
    return typeof value !== 'string';
  });
  if (wrong !== undefined) return { kind: 'fault', fault: `${wrong} must be a string.` };
  const numbers = {
    priority: body['priority'] ?? 0,
    maxAttempts: body['maxAttempts'] ?? DEFAULT_MAX_ATTEMPTS,
  };
  const noInteger = Object.entries(numbers).find(([, value]) => !isInteger(value));
  if (noInteger !== undefined) return { kind: 'fault', fault: `${noInteger[0]} must be an integer.` };
  const asked = body['onStale'] ?? 'CANCEL';
  const onStale = STALE_ACTIONS.find((action) => action.toUpperCase() === asked);
  if (onStale === undefined) return { kind: 'fault', fault: 'onStale must be CANCEL or REQUEUE.' };
  return wanted(call, {
    projectId: textAt(body, 'projectId'),
    env: textAt(body, 'env'),
    gitSha: textAt(body, 'gitSha'),
    gitRef: textAt(body, 'gitRef'),
    metadata: body['metadata'] ?? {},
    priority: Number(numbers.priority),
    maxAttempts: Number(numbers.maxAttempts),
    onStale,
    idempotencyKey: textAt(body, 'idempotencyKey'),
  });
}

interface Found {
  readonly projectId: string | null;
  readonly env: string | null;
  readonly gitSha: string | null;
  readonly gitRef: string | null;
  readonly metadata: unknown;
  readonly priority?: number;
  readonly onStale?: StaleAction;
  readonly maxAttempts?: number;
  readonly idempotencyKey?: string | null;
}

function wanted(call: WebhookCall, found: Found): WebhookReading {
  const gitRef = found.gitRef?.replace(/^refs\/(heads|tags)\//, '') ?? null;
  if (call.ref !== null && call.ref !== gitRef) {
    return {
      kind: 'ignored',
      reason: `Only ${call.ref} is listened to, not ${gitRef ?? 'a call without a ref'}.`,
    };
  }
  return {
    kind: 'run',
    run: {
      projectId: call.project ?? found.projectId ?? DEFAULT_LABEL,
      env: call.env ?? found.env ?? DEFAULT_LABEL,
      gitSha: found.gitSha,
      gitRef,
      metadata: isObject(found.metadata) ? withoutNulls(found.metadata) : found.metadata,
      priority: found.priority ?? 0,
      onStale: found.onStale ?? 'cancel',
      maxAttempts: found.maxAttempts ?? DEFAULT_MAX_ATTEMPTS,
      idempotencyKey: found.idempotencyKey ?? null,
    },
  };
}

/** Of 32 bits. */
function isInteger(value: unknown): boolean {
  return Number.isInteger(value) && Math.abs(Number(value)) <= 2 ** 31 - 1;
}

type JsonObject = Readonly<Record<string, unknown>>;

function objectAt(object: JsonObject, name: string): JsonObject {
  const value = object[name];
  return isObject(value) ? value : {};
}

function textAt(object: JsonObject, name: string): string | null {
  const value = object[name];
  return typeof value === 'string' && value !== '' ? value : null;
}

function repositoryOf(body: JsonObject): string | null {
  return textAt(objectAt(body, 'repository'), 'full_name');
}

function withoutNulls(object: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== null));
}
