// What a mail server's refusal means, in words of ours. Its own are never told: it may repeat the credentials that
// it was sent, and what listens at an address may be anything.

/** As the SMTP client tells of it. */
export interface SmtpFailure extends Error {
  /** What went wrong, by the client's own list. */
  readonly code?: string | undefined;
  /** What the server was asked. */
  readonly command?: string | undefined;
  readonly response?: string | undefined;
  readonly responseCode?: number | undefined;
  readonly recipient?: string | undefined;
  /** One of each address that was refused. */
  readonly rejectedErrors?: readonly SmtpFailure[] | undefined;
}

/** Answers to a letter, as opposed to those about the connection or the login, which are put right at either end. */
const ABOUT_THE_LETTER: ReadonlySet<string | undefined> = new Set(['EENVELOPE', 'EMESSAGE']);
/** 5xx that say: out of order, or log in first. */
const PATIENT_CODES: ReadonlySet<number> = new Set([503, 530, 534, 535, 538]);

/** Whether the server has said that it will never take this letter. */
export function isLetterRefused({ code, responseCode = 0 }: SmtpFailure): boolean {
  return ABOUT_THE_LETTER.has(code) && isReply(responseCode, 5) && !PATIENT_CODES.has(responseCode);
}

export function describeSmtpFailure({
  message,
  response,
  responseCode = 0,
  command,
  code,
}: SmtpFailure): string {
  if (!response) return message;
  const isSmtp = [2, 3, 4, 5].some((first) => isReply(responseCode, first));
  const [, enhanced] = /^\d{3}[ -]([245]\.\d{1,3}\.\d{1,3})(?!\S)/.exec(response) ?? [];
  const answer = isSmtp ? ['SMTP', responseCode, enhanced] : ['no answer in SMTP'];
  return [...answer, command && `to ${command}`, code && `(${code})`].filter(Boolean).join(' ');
}

function isReply(code: number, first: number): boolean {
  return Math.floor(code / 100) === first;
}
