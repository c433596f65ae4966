// Who is asking. Every verb of the store takes a viewer first, and sees only that viewer's tenant.

export const ROLES = ['VIEWER', 'OPERATOR', 'ADMIN', 'WORKER'] as const;
export type Role = (typeof ROLES)[number];

export interface Viewer {
  readonly tenantId: string;
  readonly role: Role;
  /** How the ledger names them. */
  readonly actor: string;
  readonly keyId: string | null;
}
