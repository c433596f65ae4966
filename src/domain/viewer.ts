// Who is asking, and what their role lets them ask. Every verb of the store takes a viewer first, and sees
// only that viewer's tenant.

export const ROLES = ['VIEWER', 'OPERATOR', 'ADMIN', 'WORKER'] as const;
export type Role = (typeof ROLES)[number];

export interface Viewer {
  readonly tenantId: string;
  readonly role: Role;
  /** How the ledger names them. */
  readonly actor: string;
  readonly keyId: string | null;
}

/** The tenant of those who operate the server: it is there from the start. */
export const OPERATING_TENANT = 'default';

/** What an operation of the API needs; a WORKER's key opens nothing but what a worker of ops runs needs. */
const ALLOWED = {
  READ: ['VIEWER', 'OPERATOR', 'ADMIN'],
  /** Start, stop, repeat and undo runs. */
  OPERATE: ['OPERATOR', 'ADMIN'],
  /** Change what runs are made of and who may use it: rules, catalog, channels, schedules, keys. */
  ADMINISTER: ['ADMIN'],
  /** Read ops runs. */
  READ_OPS: ['VIEWER', 'OPERATOR', 'ADMIN', 'WORKER'],
  /** Queue, claim, report on and cancel ops runs. */
  WORK_OPS: ['OPERATOR', 'ADMIN', 'WORKER'],
} as const satisfies Record<string, readonly Role[]>;

export type Access = keyof typeof ALLOWED;

export function isAllowed(role: Role, access: Access): boolean {
  return (ALLOWED[access] as readonly Role[]).includes(role);
}
