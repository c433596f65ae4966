// Apollo Server as Runledger runs it: queries and mutations only, limits on, nothing sent to anybody. Called
// by http, which owns routing and authentication.

import {
  ApolloServer,
  type ApolloServerPlugin,
  type BaseContext,
  type GraphQLRequestContext,
  type GraphQLRequestContextDidResolveOperation,
  type GraphQLRequestContextWillSendResponse,
  type GraphQLRequestListener,
} from '@apollo/server';
import {
  ApolloServerPluginLandingPageDisabled,
  ApolloServerPluginSchemaReportingDisabled,
  ApolloServerPluginUsageReportingDisabled,
} from '@apollo/server/plugin/disabled';
import { OperationTypeNode, type GraphQLSchema } from 'graphql';
import type { Logger } from 'pino';
import { currentSpan } from '../tracing.js';
import { assertAffordable, measureCost } from './cost.js';
import { requestError, type ErrorPresenter } from './errors.js';
import { documentRules, type Limits } from './limits.js';

export interface ApolloOptions {
  readonly schema: GraphQLSchema;
  readonly limits: Limits;
  readonly errors: ErrorPresenter;
  readonly log: Logger;
}

export function createApollo<Context extends BaseContext>(options: ApolloOptions): ApolloServer<Context> {
  const { schema, limits, errors, log } = options;
  return new ApolloServer<Context>({
    schema,
    logger: log,
    // Apollo would otherwise take its behaviour from NODE_ENV, and its own signals.
    nodeEnv: 'production',
    stopOnTerminationSignals: false,
    introspection: true,
    includeStacktraceInErrorResponses: false,
    csrfPrevention: true,
    allowBatchedHttpRequests: false,
    persistedQueries: false,
    parseOptions: { maxTokens: limits.tokens },
    validationRules: [...documentRules(limits)],
    formatError: (_formatted, error) => errors.present(error),
    plugins: [
      new CostPlugin<Context>(limits.cost),
      new OriginPlugin<Context>(errors),
      // Our own page is served by http; an APOLLO_KEY in the environment must not start any reporting.
      ApolloServerPluginLandingPageDisabled(),
      ApolloServerPluginUsageReportingDisabled(),
      ApolloServerPluginSchemaReportingDisabled(),
    ],
  });
}

/** Says which operation it is: to the trace, and to those who present its errors. */
class OriginPlugin<Context extends BaseContext> implements ApolloServerPlugin<Context> {
  constructor(private readonly errors: ErrorPresenter) {}

  requestDidStart(_context: GraphQLRequestContext<Context>): Promise<GraphQLRequestListener<Context>> {
    return Promise.resolve({
      didResolveOperation: async ({ operation }) => {
        const type = operation?.operation ?? 'query';
        const operationName = operation?.name?.value ?? '';
        const span = currentSpan();
        span?.rename(`${type} ${operationName}`.trimEnd());
        span?.note({ 'graphql.operation.type': type, 'graphql.operation.name': operationName });
      },
      didEncounterErrors: async ({ errors, contextValue }) => {
        const { correlationId } = contextValue as { readonly correlationId?: string };
        if (correlationId !== undefined) this.errors.attribute(errors, correlationId);
        currentSpan()?.fail(String(errors[0]?.extensions['code'] ?? 'ERROR'));
      },
    });
  }
}

class CostPlugin<Context extends BaseContext> implements ApolloServerPlugin<Context> {
  constructor(private readonly maximum: number) {}

  requestDidStart(_context: GraphQLRequestContext<Context>): Promise<GraphQLRequestListener<Context>> {
    return Promise.resolve(new CostOfRequest<Context>(this.maximum));
  }
}

/** Prices one request before it runs, and tells the price in its response. */
class CostOfRequest<Context extends BaseContext> implements GraphQLRequestListener<Context> {
  private requested: number | null = null;

  constructor(private readonly maximum: number) {}

  didResolveOperation({
    schema,
    document,
    operation,
    request,
  }: GraphQLRequestContextDidResolveOperation<Context>): Promise<void> {
    if (operation?.operation === OperationTypeNode.SUBSCRIPTION) {
      throw requestError(
        'BAD_USER_INPUT',
        'Subscriptions run at this same address over a WebSocket (graphql-transport-ws), or with Accept: text/event-stream.',
      );
    }
    const { operationName, variables } = request;
    this.requested = measureCost({ schema, document, operationName, variables });
    assertAffordable(this.requested, this.maximum);
    return Promise.resolve();
  }

  willSendResponse({ response }: GraphQLRequestContextWillSendResponse<Context>): Promise<void> {
    if (this.requested !== null && response.body.kind === 'single') {
      const { singleResult } = response.body;
      const cost = { requested: this.requested, maximum: this.maximum };
      singleResult.extensions = { ...singleResult.extensions, cost };
    }
    return Promise.resolve();
  }
}
