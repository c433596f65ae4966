// Alerts by e-mail, over SMTP. The connection is encrypted unless it stays on this machine.

import { createTransport } from 'nodemailer';
import { z } from 'zod';
import { Deadline } from '../deadline.js';
import { headlineOf, SEND_TIMEOUT_MS, type AlertSink, type Notice } from './sink.js';

const MAX_RECIPIENTS = 20;
const LOOPBACK = new Set(['127.0.0.1', '::1', 'localhost']);

export const EMAIL_SETTINGS = z
  .strictObject({
    host: z.string().min(1).max(253),
    port: z.int().min(1).max(65_535).default(587),
    /** TLS from the first byte, as on port 465; otherwise STARTTLS, which must succeed. */
    secure: z.boolean().default(false),
    user: z.string().min(1).max(320).exactOptional(),
    password: z.string().min(1).max(1024).exactOptional(),
    from: z.email(),
    to: z.array(z.email()).min(1).max(MAX_RECIPIENTS),
  })
  .refine(({ user, password }) => (user === undefined) === (password === undefined), {
    message: 'user and password go together',
    path: ['password'],
  });

export class EmailSink implements AlertSink {
  constructor(
    private readonly settings: z.infer<typeof EMAIL_SETTINGS>,
    private readonly timeoutMs = SEND_TIMEOUT_MS,
  ) {}

  async send(notice: Notice, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const { host, port, secure, user, password, from, to } = this.settings;
    const transport = createTransport({
      host,
      port,
      secure,
      requireTLS: !secure && !LOOPBACK.has(host),
      ...(user === undefined ? {} : { auth: { user, pass: password! } }),
      connectionTimeout: this.timeoutMs,
      greetingTimeout: this.timeoutMs,
      socketTimeout: this.timeoutMs,
    });
    // The timeouts above are between two bytes; a server that trickles would outlast them all.
    const deadline = new Deadline(this.timeoutMs, signal);
    try {
      await transport.sendMail({ from, to, ...letterOf(notice), signal: deadline.signal });
    } catch (error) {
      if (deadline.expired) throw new Error(`not taken within ${this.timeoutMs} ms`, { cause: error });
      throw error;
    } finally {
      deadline.clear();
      transport.close();
    }
  }
}

function letterOf(notice: Notice): {
  subject: string;
  text: string;
  messageId: string;
  headers: Record<string, string>;
} {
  const { alertId, id, policy, tenantId, value, threshold, firedAt, resolvedAt, message, advice } = notice;
  const lines = [
    message,
    '',
    `Policy:    ${policy}`,
    `Tenant:    ${tenantId}`,
    `Value:     ${value} (threshold ${threshold})`,
    `Fired:     ${firedAt.toISOString()}`,
    ...(resolvedAt ? [`Resolved:  ${resolvedAt.toISOString()}`] : []),
    '',
    advice,
  ];
  // The same id for every try: a mail server that takes it twice can tell. Letters of one alert form a thread.
  return {
    subject: headlineOf(notice),
    text: lines.join('\n'),
    messageId: `<${id}@runledger>`,
    headers: { References: `<${alertId}@runledger>` },
  };
}
