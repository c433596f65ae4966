// Alert sinks over real HTTP and SMTP: what each sends, and that it gives up in time.
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { inspect } from 'node:util';
import { SMTPServer, type SMTPServerOptions } from 'smtp-server';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { z } from 'zod';
import { EMAIL_SETTINGS, EmailSink } from '../../src/connectors/alert-sink/email.js';
import { ALERT_SINK_KINDS, openAlertSink } from '../../src/connectors/alert-sink/registry.js';
import type { Notice } from '../../src/connectors/alert-sink/sink.js';
import { AppError } from '../../src/errors.js';
import { until } from '../support/app.js';
import { Receiver } from '../support/receiver.js';

const NEVER = new AbortController().signal;

const FIRED: Notice = {
  id: '17',
  event: 'FIRED',
  alertId: 'a1',
  tenantId: 'acme',
  policy: 'DLQ_CRITICAL',
  severity: 'CRITICAL',
  title: 'Critical dead-letter backlog',
  message: '120 dead letters, more than 100',
  advice: 'Drain the dead letters.',
  value: 120,
  threshold: 100,
  firedAt: new Date('2026-01-02T03:04:05Z'),
  resolvedAt: null,
  takenBy: [],
};
const RESOLVED: Notice = {
  ...FIRED,
  id: '18',
  event: 'RESOLVED',
  resolvedAt: new Date('2026-01-02T04:00:00Z'),
};

describe('over HTTP', () => {
  let receiver: Receiver;

  beforeEach(async () => {
    receiver = await Receiver.start();
  });
  afterEach(() => receiver.stop());

  test('a webhook gets a message that Slack shows, signed over time and body', async () => {
    const secret = 'a-secret-of-some-length';
    const sink = openAlertSink('WEBHOOK', { url: receiver.url('/hook'), secret });
    await sink.send(FIRED, NEVER);
    const [{ headers, body, text }] = receiver.at('/hook') as [ReturnType<Receiver['at']>[number]];
    expect(body).toMatchObject({
      text: '[CRITICAL] Critical dead-letter backlog: 120 dead letters, more than 100',
      attachments: [{ color: '#a30200', text: 'Drain the dead letters.', ts: 1767323045 }],
      alert: {
        event: 'FIRED',
        alertId: 'a1',
        tenantId: 'acme',
        policy: 'DLQ_CRITICAL',
        value: 120,
        resolvedAt: null,
      },
    });
    expect(headers['x-runledger-delivery']).toBe('17');
    const [, time, digest] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(String(headers['x-runledger-signature']))!;
    expect(Math.abs(Date.now() / 1000 - Number(time))).toBeLessThan(60);
    expect(createHmac('sha256', secret).update(`${time}.${text}`).digest('hex')).toBe(digest);
    await sink.send(RESOLVED, NEVER);
    expect(receiver.at('/hook')[1]!.body).toMatchObject({
      attachments: [{ color: '#2eb886' }],
      alert: { event: 'RESOLVED' },
    });
  });

  test('a webhook without a secret is not signed', async () => {
    await openAlertSink('WEBHOOK', { url: receiver.url('/slack') }).send(FIRED, NEVER);
    expect(receiver.received[0]!.headers).not.toHaveProperty('x-runledger-signature');
  });

  test('PagerDuty gets an incident, and its end under the same key', async () => {
    const sink = openAlertSink('PAGERDUTY', {
      routingKey: 'R0123456789ABCDEF0123456789ABCDEF',
      url: receiver.url('/v2/enqueue'),
    });
    await sink.send(FIRED, NEVER);
    await sink.send(RESOLVED, NEVER);
    await sink.send({ ...FIRED, event: 'TEST', alertId: 'test' }, NEVER);
    const [trigger, resolve, probe, end] = receiver.received.map(({ body }) => body);
    expect(trigger).toMatchObject({
      routing_key: 'R0123456789ABCDEF0123456789ABCDEF',
      event_action: 'trigger',
      dedup_key: 'runledger-a1',
      payload: {
        severity: 'critical',
        source: 'runledger/acme',
        component: 'DLQ_CRITICAL',
        timestamp: '2026-01-02T03:04:05.000Z',
      },
    });
    expect(resolve).toEqual({
      routing_key: trigger.routing_key,
      event_action: 'resolve',
      dedup_key: 'runledger-a1',
    });
    expect(probe.payload.severity).toBe('info');
    // Nobody would ever resolve a test.
    expect(end).toMatchObject({ event_action: 'resolve', dedup_key: 'runledger-test' });
  });

  test('an answer 2xx whose body does not end is an answer', async () => {
    receiver.answers.set('/hook', 'trickle');
    const stop = new AbortController();
    await openAlertSink('WEBHOOK', { url: receiver.url('/hook') }).send(FIRED, stop.signal);
    stop.abort();
  });

  test.each([
    [500, 'HTTP 500 Internal Server Error'],
    [404, 'HTTP 404 Not Found'],
    [302, 'HTTP 302 Found'],
  ])('an answer %i is a failure that says so', async (status, message) => {
    receiver.answers.set('/hook', status);
    const sending = openAlertSink('WEBHOOK', { url: receiver.url('/hook') }).send(FIRED, NEVER);
    await expect(sending).rejects.toThrow(message);
    expect(receiver.received).toHaveLength(1);
  });

  test('a stop cuts a sink that hangs', async () => {
    receiver.answers.set('/hook', 'hang');
    const stopping = new AbortController();
    const sending = openAlertSink('WEBHOOK', { url: receiver.url('/hook') }).send(FIRED, stopping.signal);
    const failed = expect(sending).rejects.toThrow();
    await receiver.next();
    stopping.abort();
    await failed;
  });

  test('nobody there is a failure that says so', async () => {
    const url = receiver.url('/hook');
    await receiver.stop();
    const sending = openAlertSink('WEBHOOK', { url }).send(FIRED, NEVER);
    await expect(sending).rejects.toThrow(/ECONNREFUSED/);
  });
});

describe('by e-mail', () => {
  const letters: {
    readonly from: string;
    readonly to: string[];
    readonly text: string;
    readonly isEncrypted: boolean;
  }[] = [];
  let isBroken = false;
  /** What the server answers to an address; it takes those that are not here. */
  const refusals = new Map<string, number>();
  const manners: SMTPServerOptions = {
    // It would complain of its own certificate.
    logger: false,
    onRcptTo: ({ address }, _session, done) => {
      const responseCode = refusals.get(address);
      done(responseCode === undefined ? null : Object.assign(new Error('not known here'), { responseCode }));
    },
    authOptional: true,
    onAuth: ({ username, password }, _session, done) =>
      done(username === 'ops' && password === 'right' ? null : new Error('wrong password'), {
        user: username,
      }),
    onData: (stream, { envelope, secure }, done) => {
      const parts: Buffer[] = [];
      stream.on('data', (part: Buffer) => parts.push(part));
      stream.on('end', () => {
        if (isBroken) return done(new Error('mailbox full'));
        const { mailFrom, rcptTo } = envelope;
        letters.push({
          from: mailFrom ? mailFrom.address : '',
          to: rcptTo.map(({ address }) => address),
          text: Buffer.concat(parts).toString('utf8'),
          isEncrypted: secure,
        });
        done();
      });
    },
  };
  const server = new SMTPServer({ ...manners, disabledCommands: ['STARTTLS'] });
  let settings: Record<string, unknown>;

  beforeAll(async () => {
    server.listen(0, '0.0.0.0');
    await once(server.server, 'listening');
    const { port } = server.server.address() as { port: number };
    settings = {
      host: '127.0.0.1',
      port,
      from: 'runledger@example.com',
      to: ['oncall@example.com', 'lead@example.com'],
    };
  });
  afterAll(() => new Promise<void>((resolve) => server.close(resolve)));

  test('the letter says it all, and letters of one alert form a thread', async () => {
    await openAlertSink('EMAIL', settings).send(RESOLVED, NEVER);
    const [letter] = letters;
    expect(letter).toMatchObject({
      from: 'runledger@example.com',
      to: ['oncall@example.com', 'lead@example.com'],
    });
    expect(letter!.text).toContain('Subject: [RESOLVED] Critical dead-letter backlog: 120 dead letters');
    expect(letter!.text).toContain('Message-ID: <18@runledger>');
    expect(letter!.text).toContain('References: <a1@runledger>');
    expect(letter!.text).toContain('Resolved:  2026-01-02T04:00:00.000Z');
  });

  test('with a password, and without the right one not', async () => {
    await openAlertSink('EMAIL', { ...settings, user: 'ops', password: 'right' }).send(FIRED, NEVER);
    const sending = openAlertSink('EMAIL', { ...settings, user: 'ops', password: 'wrong' }).send(
      FIRED,
      NEVER,
    );
    const fault = await sending.catch((error: unknown) => error);
    // Whoever changed it puts it right.
    expect(fault).toMatchObject({ message: 'SMTP 535 to AUTH PLAIN (EAUTH)', facts: { isFinal: false } });
  });

  test('a refusal by the server is a failure', async () => {
    isBroken = true;
    await expect(openAlertSink('EMAIL', settings).send(FIRED, NEVER)).rejects.toThrow(
      'SMTP 450 to DATA (EMESSAGE)',
    );
    isBroken = false;
  });

  describe('to several of whom one is refused', () => {
    const LEAD = 'lead@example.com';
    beforeEach(() => {
      letters.length = 0;
      refusals.clear();
    });
    afterEach(() => refusals.clear());
    const send = (takenBy: readonly string[] = []) =>
      openAlertSink('EMAIL', settings).send({ ...FIRED, takenBy }, NEVER);

    test('for now, it is sent again to that one alone', async () => {
      refusals.set(LEAD, 450);
      const fault = await send().catch((error: unknown) => error);
      expect(fault).toMatchObject({
        message: `${LEAD}: SMTP 450 to RCPT TO (EENVELOPE)`,
        facts: { isFinal: false, takenBy: ['oncall@example.com'] },
      });
      refusals.clear();
      expect(await send(['oncall@example.com'])).toBeNull();
      expect(letters.map(({ to }) => to)).toEqual([['oncall@example.com'], [LEAD]]);
      expect(letters[1]!.text).toContain('To: oncall@example.com, lead@example.com');
    });

    test('for good, it is taken, and says so', async () => {
      refusals.set(LEAD, 550);
      expect(await send()).toBe(`${LEAD}: SMTP 550 to RCPT TO (EENVELOPE)`);
      expect(await send(['oncall@example.com'])).toBe(`${LEAD}: SMTP 550 to RCPT TO (EENVELOPE)`);
      expect(letters.map(({ to }) => to)).toEqual([['oncall@example.com']]);
    });

    test('as the others are, it is refused, for good or not', async () => {
      refusals.set(LEAD, 550).set('oncall@example.com', 550);
      await expect(send()).rejects.toMatchObject({ facts: { isFinal: true, takenBy: [] } });
      refusals.set('oncall@example.com', 452);
      await expect(send()).rejects.toMatchObject({ facts: { isFinal: false, takenBy: [] } });
    });
  });

  describe('what a server says', () => {
    async function hear(onConnection: (socket: Socket) => void): Promise<unknown> {
      const talker = createServer((socket) => onConnection(socket.on('error', () => {}))).listen(
        0,
        '127.0.0.1',
      );
      await once(talker, 'listening');
      const { port } = talker.address() as AddressInfo;
      const config = { ...settings, port, user: 'ops', password: 'correct-horse-battery' };
      const fault = await openAlertSink('EMAIL', config)
        .send(FIRED, NEVER)
        .catch((error: unknown) => error);
      talker.close();
      return fault;
    }

    test('is not told: it may repeat the password', async () => {
      const fault = await hear((socket) => {
        socket.write('220 mail\r\n');
        socket.on('data', (data: Buffer) => {
          const line = data.toString().trim();
          if (line.startsWith('EHLO')) socket.write('250-mail\r\n250 AUTH PLAIN\r\n');
          else socket.write(`500 5.5.1 Command unrecognized: "${line}"\r\n`);
        });
      });
      expect(fault).toMatchObject({
        message: 'SMTP 500 5.5.1 to AUTH PLAIN (EAUTH)',
        facts: { isFinal: false },
      });
      const known = Buffer.from('\0ops\0correct-horse-battery').toString('base64');
      expect(inspect(fault, { depth: null })).not.toContain(known);
    });

    test('is not told when it is no mail server at all', async () => {
      const fault = await hear((socket) => socket.end('SSH-2.0-OpenSSH_9.2p1\r\n'));
      expect(inspect(fault, { depth: null })).not.toContain('OpenSSH');
      expect((fault as Error).message).toContain('no answer in SMTP');
    });

    test('as its greeting refuses no letter for good', async () => {
      const fault = await hear((socket) => socket.write('554 5.7.1 your address is listed\r\n'));
      expect(fault).toMatchObject({ facts: { isFinal: false } });
      expect((fault as Error).message).toMatch(/^SMTP 554 5\.7\.1 to CONN/);
    });
  });

  describe('a server that trickles', () => {
    const held = new Set<Socket>();
    const trickle = createServer((socket) => {
      held.add(socket.on('error', () => {}));
      socket.write('220 ready\r\n');
      // An answer without an end, of which there is always something new.
      const drops = setInterval(() => socket.write('2'), 20);
      socket.on('close', () => {
        clearInterval(drops);
        held.delete(socket);
      });
    });
    let slow: z.infer<typeof EMAIL_SETTINGS>;

    beforeAll(async () => {
      trickle.listen(0, '127.0.0.1');
      await once(trickle, 'listening');
      const { port } = trickle.address() as AddressInfo;
      slow = EMAIL_SETTINGS.parse({ ...settings, port });
    });
    afterAll(() => trickle.close());
    const allGone = () =>
      until(
        async () => held.size,
        (left) => left === 0,
      );

    test('is given up in time, and let go of', async () => {
      await expect(new EmailSink(slow, 300).send(FIRED, NEVER)).rejects.toThrow('not taken within 300 ms');
      await allGone();
    });

    test('is cut by a stop', async () => {
      const stopping = new AbortController();
      const sending = new EmailSink(slow).send(FIRED, stopping.signal);
      const failed = expect(sending).rejects.toThrow();
      await once(trickle, 'connection');
      stopping.abort();
      await failed;
      await allGone();
    });
  });

  describe('to a server with a certificate that nobody vouches for', () => {
    const offering = new SMTPServer(manners);
    const insisting = new SMTPServer({ ...manners, secure: true });
    const config = (to: SMTPServer, more: object = {}) => {
      const { port } = to.server.address() as AddressInfo;
      return { ...settings, port, secure: to === insisting, ...more };
    };

    beforeAll(async () => {
      for (const each of [offering, insisting]) {
        // A client that hangs up is what is tested.
        each.on('error', () => {});
        each.listen(0, '0.0.0.0');
        await once(each.server, 'listening');
      }
    });
    beforeEach(() => void (letters.length = 0));
    afterAll(async () => {
      for (const each of [offering, insisting]) await new Promise<void>((done) => each.close(done));
    });

    test('of this machine the letter goes, encrypted, with a password and without', async () => {
      await openAlertSink('EMAIL', config(offering)).send(FIRED, NEVER);
      await openAlertSink('EMAIL', config(offering, { user: 'ops', password: 'right' })).send(FIRED, NEVER);
      await openAlertSink('EMAIL', config(insisting)).send(FIRED, NEVER);
      expect(letters.map(({ isEncrypted }) => isEncrypted)).toEqual([true, true, true]);
    });

    test('of another it does not, and the reason says so', async () => {
      for (const to of [offering, insisting]) {
        const sending = openAlertSink('EMAIL', config(to, { host: '127.0.0.2' })).send(FIRED, NEVER);
        await expect(sending).rejects.toThrow(/certificate/);
      }
      expect(letters).toEqual([]);
    });
  });

  test('to another machine only over TLS', async () => {
    // The stand-in offers none; by a name that is not this machine's it is refused, before anything is said.
    const sending = openAlertSink('EMAIL', { ...settings, host: '127.0.0.2' }).send(FIRED, NEVER);
    const before = letters.length;
    await expect(sending).rejects.toThrow();
    expect(letters).toHaveLength(before);
  });
});

test.each([
  ['WEBHOOK', { url: 'ftp://example.com' }, 'url'],
  ['WEBHOOK', { url: 'http://example.com/hook' }, 'https'],
  ['WEBHOOK', { url: 'https://example.com', secret: 'short' }, 'secret'],
  ['WEBHOOK', { url: 'https://example.com', extra: 1 }, 'extra'],
  ['PAGERDUTY', {}, 'routingKey'],
  ['EMAIL', { host: 'mail', from: 'nobody', to: [] }, 'from'],
  ['EMAIL', { host: 'mail', from: 'a@b.co', to: ['a@b.co'], user: 'u' }, 'user and password'],
  ['PIGEON', {}, 'no alert sink of the kind'],
])('%s with %j is refused', (kind, config, message) => {
  try {
    ALERT_SINK_KINDS.check(kind, config);
    expect.unreachable();
  } catch (error) {
    expect(error).toBeInstanceOf(AppError);
    expect(error).toMatchObject({
      code: 'INVALID_INPUT',
      message: expect.stringContaining(message) as string,
    });
  }
});
