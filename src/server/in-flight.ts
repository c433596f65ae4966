// The requests whose answer is not yet on its way: a server that stops waits for them. Called by http.

import type { FastifyReply } from 'fastify';

export class InFlight {
  private count = 0;
  private whenNone: (() => void) | null = null;

  track(reply: FastifyReply): void {
    this.count += 1;
    reply.raw.once('close', () => {
      this.count -= 1;
      if (this.count === 0) this.whenNone?.();
    });
  }

  async settled(withinMs: number): Promise<void> {
    if (this.count === 0) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, withinMs);
      this.whenNone = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
