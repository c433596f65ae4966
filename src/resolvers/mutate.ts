// Carries out a mutation. A refusal becomes the payload's `userErrors`, beside whatever the payload shows
// when nothing was done; a fault is thrown on, and becomes a GraphQL error.

import { AppError } from '../errors.js';
import { shape } from '../schema/shape.js';
import { UserError, type Payload } from '../schema/payload.js';

type Answer<P extends Payload> = Omit<P, 'userErrors'>;

export async function mutate<P extends Payload>(
  whenRefused: Answer<P>,
  verb: () => Promise<Answer<P>>,
): Promise<Answer<P> & Pick<Payload, 'userErrors'>> {
  try {
    return { ...(await verb()), userErrors: [] };
  } catch (error) {
    if (!(error instanceof AppError) || !error.isRefusal) throw error;
    const { code, message, field, details } = error;
    return { ...whenRefused, userErrors: [shape(UserError, { code, message, field, details })] };
  }
}
