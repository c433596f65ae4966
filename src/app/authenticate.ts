// Turns credentials into a viewer. The only rule for callers without a key lives here: this machine's own
// people, on the embedded database, while the server cannot be reached from elsewhere.

import { isLoopbackHost, type Config } from '../config.js';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import type { Credentials } from '../server/auth.js';
import { findViewerByKey } from '../store/api-key.js';
import type { Database } from '../store/db.js';

const LOCAL_ADMIN: Viewer = Object.freeze({
  tenantId: 'default',
  role: 'ADMIN',
  actor: 'local',
  keyId: null,
});

export class Authenticator {
  readonly #db: Database;
  readonly #trustsLocalCallers: boolean;

  constructor(db: Database, { database, http }: Config) {
    this.#db = db;
    this.#trustsLocalCallers = database.kind === 'embedded' && isLoopbackHost(http.host);
  }

  async authenticate({ token, local }: Credentials): Promise<Viewer> {
    if (token === null) {
      if (this.#trustsLocalCallers && local) return LOCAL_ADMIN;
      throw new AppError('UNAUTHENTICATED', 'An API key is needed: send "Authorization: Bearer <API key>".');
    }
    const viewer = await findViewerByKey(this.#db, token);
    if (!viewer) throw new AppError('UNAUTHENTICATED', 'This API key is not known, or was revoked.');
    return viewer;
  }
}
