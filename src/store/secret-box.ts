// Seals credentials before they are stored, by AES-256-GCM. Owns the server's keys: the first one seals, any
// of them opens, and a sealed text names its key, so that a key can be replaced without a gap. A sealed text
// is bound to the row it belongs to and opens for no other. Without a key nothing is sealed.

import { createCipheriv, createDecipheriv, createHmac, randomBytes } from 'node:crypto';
import { AppError } from '../errors.js';

export interface Sealed {
  readonly keyId: string;
  readonly text: string;
}

/** The key is not here, which says nothing of the credentials: another process may have it. */
export class MissingKey extends AppError {
  constructor(keyId: string) {
    super(
      'INVALID_INPUT',
      `Its credentials were encrypted with the key ${keyId}, which is not in RUNLEDGER_SECRET_KEY.`,
    );
  }
}

const ALGORITHM = 'aes-256-gcm';
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

export class SecretBox {
  /** By id; the first is the one that seals. */
  readonly #keys = new Map<string, Buffer>();

  /** Takes keys as `RUNLEDGER_SECRET_KEY` has them: 32 bytes each, in hexadecimal or base64. */
  constructor(keys: readonly string[]) {
    for (const text of keys) {
      const key = Buffer.from(text, text.length === 2 * KEY_BYTES ? 'hex' : 'base64');
      if (key.length !== KEY_BYTES) throw new Error(`a secret key has ${KEY_BYTES} bytes`);
      this.#keys.set(idOf(key), key);
    }
  }

  static generateKey(): string {
    return randomBytes(KEY_BYTES).toString('base64');
  }

  /** The id of the key that seals; null without one. */
  get keyId(): string | null {
    return this.#keys.keys().next().value ?? null;
  }

  /** The ids of those that only open. */
  get formerKeyIds(): readonly string[] {
    return [...this.#keys.keys()].slice(1);
  }

  seal(plain: string, boundTo: string): Sealed {
    const { keyId } = this;
    if (keyId === null) {
      throw new AppError(
        'INVALID_INPUT',
        'Credentials cannot be saved: the server has no key to encrypt them with. Set RUNLEDGER_SECRET_KEY.',
        { field: ['input', 'config'] },
      );
    }
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(ALGORITHM, this.#keys.get(keyId)!, nonce).setAAD(Buffer.from(boundTo));
    const parts = [cipher.update(plain, 'utf8'), cipher.final()];
    return { keyId, text: Buffer.concat([nonce, cipher.getAuthTag(), ...parts]).toString('base64') };
  }

  open({ keyId, text }: Sealed, boundTo: string): string {
    const key = this.#keys.get(keyId);
    if (!key) throw new MissingKey(keyId);
    const bytes = Buffer.from(text, 'base64');
    const decipher = createDecipheriv(ALGORITHM, key, bytes.subarray(0, NONCE_BYTES), {
      authTagLength: TAG_BYTES,
    })
      .setAAD(Buffer.from(boundTo))
      .setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
    try {
      return (
        decipher.update(bytes.subarray(NONCE_BYTES + TAG_BYTES), undefined, 'utf8') + decipher.final('utf8')
      );
    } catch (cause) {
      throw new AppError(
        'INVALID_INPUT',
        'Its credentials cannot be decrypted: they were changed or moved.',
        { cause },
      );
    }
  }
}

/** Tells keys apart and nothing about them. */
function idOf(key: Buffer): string {
  return createHmac('sha256', key).update('runledger key id').digest('hex').slice(0, 16);
}
