// Who is connected for longer than a request, and by what right. Invariants: a key that was revoked loses its
// connections, at once when the database says so and otherwise at the next look; a database that is away
// revokes nothing; nobody holds more subscriptions than their key may. Called by websocket and event-streams.

import type { GraphQLError, GraphQLFormattedError } from 'graphql';
import type { Logger } from 'pino';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import type { Credentials } from './auth.js';
import { requestError, type ErrorPresenter } from './errors.js';
import type { Limits } from './limits.js';

export interface LiveConnection {
  /** Null until it is admitted. */
  readonly admitted: Admitted | null;
  admit(admitted: Admitted): void;
  /** Its right has ended: `shown` says why. */
  expel(shown: GraphQLFormattedError): void;
}

export interface Admitted {
  readonly credentials: Credentials;
  readonly viewer: Viewer;
  /** How many changes of keys had been heard of when the right was looked up. */
  readonly asOf: number;
}

export interface Place {
  leave(): void;
}

export interface AdmissionOptions {
  readonly authenticate: (credentials: Credentials) => Promise<Viewer>;
  readonly limits: Pick<Limits, 'reauthenticateMs' | 'subscriptionsPerKey'>;
  readonly errors: ErrorPresenter;
  readonly log: Logger;
}

export class Admissions {
  private readonly connections = new Set<LiveConnection>();
  private readonly subscriptions = new Map<string | null, number>();
  private readonly recheck: NodeJS.Timeout;
  private keyChanges = 0;

  constructor(private readonly options: AdmissionOptions) {
    this.recheck = setInterval(() => void this.reauthenticate(() => true), options.limits.reauthenticateMs);
  }

  /** By what right somebody calls; refuses by an AppError. */
  async identify(credentials: Credentials): Promise<Admitted> {
    const asOf = this.keyChanges;
    return { credentials, viewer: await this.options.authenticate(credentials), asOf };
  }

  /** Refuses by an AppError. */
  async admit(connection: LiveConnection, credentials: Credentials): Promise<void> {
    // It may be forgotten while it waits.
    this.connections.add(connection);
    connection.admit(await this.identify(credentials));
    await this.catchUp(connection);
  }

  /** Looks at its right now and then, until it is forgotten. */
  watch(connection: LiveConnection): void {
    this.connections.add(connection);
    void this.catchUp(connection);
  }

  forget(connection: LiveConnection): void {
    this.connections.delete(connection);
  }

  /** A key was revoked, or given another role: whoever uses it is asked for it again. Null: any may have been. */
  keyChanged(keyId: string | null): Promise<void> {
    this.keyChanges += 1;
    return this.reauthenticate(({ viewer }) => keyId === null || viewer.keyId === keyId);
  }

  /** Subscriptions under way, of all keys. */
  get places(): number {
    return [...this.subscriptions.values()].reduce((sum, taken) => sum + taken, 0);
  }

  /** A place for one more subscription of the viewer's key. Callers without a key are on this machine. */
  takePlace({ keyId }: Viewer): Place | GraphQLError {
    const taken = this.subscriptions.get(keyId) ?? 0;
    const maximum = this.options.limits.subscriptionsPerKey;
    if (keyId !== null && taken >= maximum) {
      return requestError(
        'RATE_LIMITED',
        `This key already has ${maximum} subscriptions here; end some first.`,
      );
    }
    this.subscriptions.set(keyId, taken + 1);
    return { leave: () => this.leavePlace(keyId) };
  }

  stop(): void {
    clearInterval(this.recheck);
  }

  private leavePlace(keyId: string | null): void {
    const left = this.subscriptions.get(keyId)! - 1;
    if (left > 0) this.subscriptions.set(keyId, left);
    else this.subscriptions.delete(keyId);
  }

  /** Its key may have been revoked after it was looked up, and before we knew whom that concerns. */
  private async catchUp(connection: LiveConnection): Promise<void> {
    const { admitted } = connection;
    if (admitted !== null && admitted.asOf < this.keyChanges) await this.reauthenticateGroup([connection]);
  }

  /** Connections with the same credentials are decided together. */
  private async reauthenticate(concerns: (admitted: Admitted) => boolean): Promise<void> {
    const groups = new Map<string, LiveConnection[]>();
    for (const connection of this.connections) {
      if (connection.admitted === null || !concerns(connection.admitted)) continue;
      const key = JSON.stringify(connection.admitted.credentials);
      const group = groups.get(key) ?? [];
      groups.set(key, group);
      group.push(connection);
    }
    await Promise.all([...groups.values()].map((group) => this.reauthenticateGroup(group)));
  }

  private async reauthenticateGroup(group: readonly LiveConnection[]): Promise<void> {
    const { credentials } = group[0]!.admitted!;
    try {
      const admitted = await this.identify(credentials);
      for (const connection of group) {
        // What was looked up earlier may come later.
        if (connection.admitted!.asOf <= admitted.asOf) connection.admit(admitted);
      }
    } catch (error) {
      if (error instanceof AppError && (error.code === 'UNAUTHENTICATED' || error.code === 'FORBIDDEN')) {
        const shown = this.options.errors.present(error);
        for (const connection of group) connection.expel(shown);
      } else {
        this.options.log.warn({ err: error }, 'live connections could not be authenticated again; they stay');
      }
    }
  }
}
