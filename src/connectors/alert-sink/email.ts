// Alerts by e-mail, over SMTP. The connection is encrypted unless it stays on this machine.

import { createTransport, type SendMailOptions } from 'nodemailer';
import { z } from 'zod';
import { Deadline } from '../deadline.js';
import { headlineOf, NotTaken, SEND_TIMEOUT_MS, type AlertSink, type Notice } from './sink.js';
import { describeSmtpFailure, isLetterRefused, type SmtpFailure } from './smtp-failure.js';

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

  /** To those who have not taken it yet: one mailbox that is full does not fill the others. */
  async send(notice: Notice, signal: AbortSignal): Promise<string | null> {
    signal.throwIfAborted();
    const { from, to } = this.settings;
    const open = to.filter((address) => !notice.takenBy.includes(address));
    if (open.length === 0) return null;
    const letter = { from, to, envelope: { from, to: open }, ...letterOf(notice) };
    const failures = await this.#post(letter, signal);
    const refused = new Set(failures.map(({ recipient = '' }) => recipient.toLowerCase()));
    const takenBy = open.filter((address) => !refused.has(address.toLowerCase()));
    return judge(failures, takenBy, notice.takenBy.length + takenBy.length > 0);
  }

  /** Why some of the addresses were refused. */
  async #post(letter: SendMailOptions, signal: AbortSignal): Promise<readonly SmtpFailure[]> {
    const { host, port, secure, user, password } = this.settings;
    const isHere = LOOPBACK.has(host);
    const transport = createTransport({
      host,
      port,
      secure,
      requireTLS: !secure && !isHere,
      // A mail server of this machine has a certificate of its own making, and nobody is in between.
      tls: { rejectUnauthorized: !isHere },
      ...(user === undefined ? {} : { auth: { user, pass: password! } }),
      connectionTimeout: this.timeoutMs,
      greetingTimeout: this.timeoutMs,
      socketTimeout: this.timeoutMs,
    });
    // The timeouts above are between two bytes; a server that trickles would outlast them all.
    const deadline = new Deadline(this.timeoutMs, signal);
    try {
      return (await transport.sendMail({ ...letter, signal: deadline.signal })).rejectedErrors ?? [];
    } catch (error) {
      if (deadline.expired) throw new Error(`not taken within ${this.timeoutMs} ms`, { cause: error });
      const failure = error as SmtpFailure;
      if (failure.rejectedErrors?.length) return failure.rejectedErrors;
      const isFinal = isLetterRefused(failure);
      throw new NotTaken(describeSmtpFailure(failure), { isFinal, takenBy: [] });
    } finally {
      deadline.clear();
      transport.close();
    }
  }
}

/** It is taken when whoever has not taken it never will, and somebody has. */
function judge(
  failures: readonly SmtpFailure[],
  takenBy: readonly string[],
  isWithSomebody: boolean,
): string | null {
  if (failures.length === 0) return null;
  const isFinal = failures.every(isLetterRefused);
  const reasons = failures.map((failure) => `${failure.recipient}: ${describeSmtpFailure(failure)}`);
  if (isFinal && isWithSomebody) return reasons.join('; ');
  throw new NotTaken(reasons.join('; '), { isFinal, takenBy });
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
