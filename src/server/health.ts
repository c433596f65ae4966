// Whether this process should be sent traffic. Live is answered by http itself; ready asks the application
// about its database and listener, and is always no once the server drains. Called by http.

import type { Logger } from 'pino';

export interface Readiness {
  readonly ready: boolean;
  /** 'ok', or what is wrong, by the name of the part. */
  readonly checks: Readonly<Record<string, string>>;
}

/** A check that hangs is an answer too. */
const CHECK_TIMEOUT_MS = 5_000;

export class Health {
  private isDraining = false;

  constructor(
    private readonly isReady: () => Promise<Readiness>,
    private readonly log: Logger,
  ) {}

  get draining(): boolean {
    return this.isDraining;
  }

  startDraining(): void {
    this.isDraining = true;
  }

  async check(): Promise<Readiness> {
    if (this.isDraining) return { ready: false, checks: { server: 'draining' } };
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<Readiness>((resolve) => {
      timer = setTimeout(() => resolve({ ready: false, checks: { server: 'timeout' } }), CHECK_TIMEOUT_MS);
    });
    try {
      return await Promise.race([this.isReady(), late]);
    } catch (err) {
      this.log.error({ err }, 'readiness could not be checked');
      return { ready: false, checks: { server: 'check failed' } };
    } finally {
      clearTimeout(timer);
    }
  }
}
