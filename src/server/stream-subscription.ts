// One subscription on one event stream, from its first event to its end. Called by event-streams.

import type { GraphQLFormattedError } from 'graphql';
import type { Place } from './admission.js';
import type { ErrorPresenter } from './errors.js';
import type { Carried, EventStream } from './event-stream.js';
import { DeliveryStream, type PreparedSubscription } from './subscription.js';

/** How results stand in a stream. */
export interface Envelope {
  next(text: string): string;
  readonly complete: string;
  /** Whether a client that is cut off can resume the stream after the id of its last event. */
  readonly isResumable: boolean;
}

/** In a stream that carries one subscription. */
export const BARE: Envelope = { next: (text) => text, complete: '', isResumable: true };

/** In a stream that carries several. */
export function namedBy(operationId: string): Envelope {
  const id = JSON.stringify(operationId);
  return {
    next: (text) => `{"id":${id},"payload":${text}}`,
    complete: `{"id":${id}}`,
    isResumable: false,
  };
}

export class StreamSubscription implements Carried {
  private deliveries: DeliveryStream | null = null;
  private cancelled = false;
  private readonly leave: () => void;

  constructor(
    private readonly prepared: PreparedSubscription,
    private readonly stream: EventStream,
    private readonly envelope: Envelope,
    private readonly errors: ErrorPresenter,
    private readonly place: Place,
  ) {
    this.leave = stream.carry(this);
  }

  /** Settles when there is nothing more to deliver; never fails. */
  async run(): Promise<void> {
    try {
      const started = await this.prepared.start();
      if (started instanceof DeliveryStream) await this.deliver(started);
      else this.sendErrors(started.errors ?? []);
    } catch (error) {
      this.sendErrors([error]);
    }
    this.leave();
    this.place.leave();
    this.complete();
  }

  refuse(errors: readonly GraphQLFormattedError[]): void {
    this.stream.tell('next', this.envelope.next(JSON.stringify({ errors })));
    this.complete();
  }

  cancel(): void {
    this.cancelled = true;
    void this.deliveries?.return();
  }

  private async deliver(deliveries: DeliveryStream): Promise<void> {
    this.deliveries = deliveries;
    while (!this.cancelled) {
      const delivery = await deliveries.next();
      if (delivery === null) return;
      const id = this.envelope.isResumable ? delivery.id : null;
      const sent = this.stream.send(this.envelope.next(delivery.text), id);
      if (sent) await sent;
    }
    await deliveries.return();
  }

  private complete(): void {
    this.stream.tell('complete', this.envelope.complete);
  }

  private sendErrors(errors: readonly unknown[]): void {
    const shown = errors.map((error) => this.errors.present(error));
    this.stream.tell('next', this.envelope.next(JSON.stringify({ errors: shown })));
  }
}
