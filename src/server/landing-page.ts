// The page at GET /graphql: Apollo Sandbox from its CDN or, where that cannot be reached, an editor of our own
// that needs nothing from outside. Invariant: the policy lets in this page's own style and script by nonce,
// and from elsewhere only what the Sandbox is made of. Called by http.

import { randomBytes } from 'node:crypto';
import { LANDING_SCRIPT } from './landing-script.js';
import { LANDING_STYLE } from './landing-style.js';

export interface LandingPage {
  readonly html: string;
  readonly contentSecurityPolicy: string;
}

const SANDBOX_CDN = 'https://embeddable-sandbox.cdn.apollographql.com';
const SANDBOX_FRAME = 'https://sandbox.embed.apollographql.com';

const ICON =
  "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E" +
  "%3Crect width='16' height='16' rx='4' fill='%230f766e'/%3E" +
  "%3Cpath d='M4 5h8M4 8h8M4 11h5' stroke='white' stroke-width='1.5' stroke-linecap='round'/%3E%3C/svg%3E";

const EXAMPLES: readonly { readonly name: string; readonly query: string; readonly variables: string }[] = [
  {
    name: 'Latest rule runs',
    query: `query LatestRuns {
  ruleRuns(first: 5) {
    totalCount
    nodes {
      id
      status
      progress
      counts { total applied failed }
      allowedActions
    }
  }
}`,
    variables: '',
  },
  {
    name: 'State machines',
    query: `query Machines {
  stateMachines {
    name
    initial
    finalStates
    transitions { event from to }
  }
}`,
    variables: '',
  },
  {
    name: 'Watch every run (live)',
    query: `subscription Board {
  runChanged {
    id
    kind
    lastSeq
    ... on RuleRun { status progress }
  }
}`,
    variables: '',
  },
  {
    name: "Follow one run's ledger (live)",
    query: `subscription Ledger($runId: ID!) {
  runEvents(runId: $runId) {
    seq
    type
    message
    actor
    createdAt
  }
}`,
    variables: '{\n  "runId": ""\n}',
  },
];

export function renderLandingPage(endpoint: string): LandingPage {
  const nonce = randomBytes(18).toString('base64');
  const settings = {
    endpoint,
    examples: EXAMPLES,
    sandboxScript: `${SANDBOX_CDN}/v2/embeddable-sandbox.umd.production.min.js`,
  };
  return { html: renderHtml(nonce, endpoint, settings), contentSecurityPolicy: policy(nonce) };
}

function policy(nonce: string): string {
  return [
    "default-src 'none'",
    `script-src 'nonce-${nonce}' ${SANDBOX_CDN}`,
    `style-src 'nonce-${nonce}'`,
    // The Sandbox sizes its frame by a style attribute.
    "style-src-attr 'unsafe-inline'",
    'img-src data: https://*.apollographql.com',
    "connect-src 'self'",
    `frame-src ${SANDBOX_FRAME}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');
}

/** JSON inside a script element must not be able to end it. */
function embedJson(value: unknown): string {
  return JSON.stringify(value).replaceAll('<', '\\u003c');
}

function renderHtml(nonce: string, endpoint: string, settings: unknown): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Runledger GraphQL</title>
<link rel="icon" href="${ICON}">
<style nonce="${nonce}">${LANDING_STYLE}</style>
</head>
<body>
<p id="loading" role="status">Loading Apollo Sandbox…</p>
<div id="sandbox" hidden></div>
<a id="leave-sandbox" href="#editor" hidden>Built-in editor</a>
<div id="editor" hidden>
${renderEditor(endpoint)}
</div>
<noscript><p>This page needs JavaScript. The API does not: POST your queries to <code>${endpoint}</code>.</p></noscript>
<script type="application/json" id="settings">${embedJson(settings)}</script>
<script nonce="${nonce}">${LANDING_SCRIPT}</script>
</body>
</html>
`;
}

function renderEditor(endpoint: string): string {
  return `<header>
  <h1>Runledger <span>GraphQL</span></h1>
  <code>${endpoint}</code>
  <p id="notice" hidden>Apollo Sandbox cannot be reached from here. This editor needs nothing from outside.
    <a href="#">Try again</a></p>
</header>
<main>
  <section aria-label="Request">
    <div class="bar">
      <label for="examples">Example</label>
      <select id="examples"></select>
      <span class="space"></span>
      <button id="stop" type="button" hidden>Stop</button>
      <button id="run" type="button" class="primary" title="Ctrl+Enter">Run</button>
    </div>
    <label for="query">Operation</label>
    <textarea id="query" spellcheck="false" autocapitalize="off" autocomplete="off"></textarea>
    <label for="variables">Variables (JSON)</label>
    <textarea id="variables" rows="5" spellcheck="false" autocapitalize="off" autocomplete="off"></textarea>
    <label for="key">API key <small>kept in this page only; a local server needs none</small></label>
    <input id="key" type="password" autocomplete="off" spellcheck="false" placeholder="rl_…">
  </section>
  <section aria-label="Result">
    <div class="bar">
      <h2>Result</h2>
      <span id="status" role="status"></span>
    </div>
    <div id="output" tabindex="0" aria-label="Results, newest first"></div>
  </section>
</main>
<details id="schema">
  <summary>What can I ask? Fields of the schema</summary>
  <div id="fields"></div>
</details>`;
}
