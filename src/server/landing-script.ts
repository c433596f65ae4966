// What the landing page does in the browser, without any library: try the Sandbox, else be an editor that
// runs queries by fetch and subscriptions by graphql-transport-ws. Used by landing-page only. It is text, so
// that no build step stands between this file and the page; values are only ever put in as text nodes.

export const LANDING_SCRIPT = `
'use strict';
const settings = JSON.parse(document.getElementById('settings').textContent);
const el = (id) => document.getElementById(id);
const endpoint = new URL(settings.endpoint, location.href).href;
const SANDBOX_WAIT_MS = 3000;
const SHOWN_RESULTS = 200;

// --- the Sandbox, or the editor
function openSandbox() {
  const script = document.createElement('script');
  const timer = setTimeout(() => openEditor(true), SANDBOX_WAIT_MS);
  script.src = settings.sandboxScript;
  script.onerror = () => { clearTimeout(timer); openEditor(true); };
  script.onload = () => {
    clearTimeout(timer);
    if (!el('editor').hidden) return;
    el('loading').hidden = true;
    el('sandbox').hidden = false;
    el('leave-sandbox').hidden = false;
    new window.EmbeddedSandbox({
      target: '#sandbox',
      initialEndpoint: endpoint,
      endpointIsEditable: false,
      runTelemetry: false,
      allowDynamicStyles: false,
      initialState: { document: settings.examples[0].query, includeCookies: false },
    });
  };
  document.head.append(script);
}

function openEditor(unreachable) {
  el('loading').hidden = true;
  el('sandbox').hidden = true;
  el('leave-sandbox').hidden = true;
  el('notice').hidden = !unreachable;
  el('editor').hidden = false;
  el('query').focus();
}

// --- the request
function readVariables() {
  const text = el('variables').value.trim();
  return text === '' ? undefined : JSON.parse(text);
}

function isSubscription(query) {
  const bare = query.replace(/"""[^]*?"""|"(?:[^"\\\\\\n]|\\\\.)*"|#.*/g, ' ');
  return /(^|[\\s}])subscription\\b[^{}]*\\{/.test(bare);
}

let socket = null;

function run() {
  stop();
  el('output').replaceChildren();
  let payload;
  try {
    payload = { query: el('query').value, variables: readVariables() };
  } catch (error) {
    return say('The variables are not valid JSON: ' + error.message, true);
  }
  if (isSubscription(payload.query)) subscribe(payload);
  else request(payload);
}

async function send(payload) {
  const headers = { 'content-type': 'application/json', accept: 'application/json' };
  const key = el('key').value.trim();
  if (key !== '') headers.authorization = 'Bearer ' + key;
  return fetch(endpoint, { method: 'POST', headers, body: JSON.stringify(payload) });
}

async function request(payload) {
  el('run').disabled = true;
  say('Running…');
  const began = performance.now();
  try {
    const response = await send(payload);
    const result = await response.json();
    show(result);
    const took = Math.round(performance.now() - began) + ' ms';
    const cost = result.extensions?.cost ? ' · cost ' + result.extensions.cost.requested : '';
    say('HTTP ' + response.status + ' · ' + took + cost, Boolean(result.errors));
  } catch (error) {
    say('No answer: ' + error.message, true);
  } finally {
    el('run').disabled = false;
  }
}

// --- subscriptions
function subscribe(payload) {
  const key = el('key').value.trim();
  const mine = new WebSocket(endpoint.replace(/^http/, 'ws'), 'graphql-transport-ws');
  const tell = (message) => mine.send(JSON.stringify(message));
  let count = 0;
  socket = mine;
  el('stop').hidden = false;
  say('Connecting…');
  mine.onopen = () => tell({ type: 'connection_init', payload: key === '' ? {} : { authorization: 'Bearer ' + key } });
  mine.onmessage = ({ data }) => {
    if (socket !== mine) return;
    const message = JSON.parse(data);
    if (message.type === 'ping') tell({ type: 'pong' });
    if (message.type === 'connection_ack') {
      tell({ id: '1', type: 'subscribe', payload });
      say('Live · waiting for the first event');
    }
    if (message.type === 'next') {
      show(message.payload);
      say('Live · ' + (count += 1) + (count === 1 ? ' event' : ' events'));
    }
    if (message.type === 'error') show({ errors: message.payload });
    if (message.type === 'error' || message.type === 'complete') {
      stop();
      say(message.type === 'error' ? 'Refused' : 'Completed after ' + count + ' events', message.type === 'error');
    }
  };
  mine.onclose = ({ code, reason }) => {
    if (socket !== mine) return;
    stop();
    say('Closed: ' + (reason || 'connection lost') + ' (' + code + ')', true);
  };
}

function stop() {
  const open = socket;
  socket = null;
  el('stop').hidden = true;
  if (open) {
    open.close(1000, 'Stopped');
    say('Stopped');
  }
}

// --- what came back
function say(text, bad) {
  el('status').textContent = text;
  el('status').className = bad ? 'bad' : '';
}

function show(result) {
  const block = document.createElement('pre');
  block.textContent = JSON.stringify(result, null, 2);
  if (result.errors) block.className = 'bad';
  el('output').prepend(block);
  while (el('output').childElementCount > SHOWN_RESULTS) el('output').lastElementChild.remove();
}

// --- the schema, when asked for
const INTROSPECTION = \`{ __schema {
  queryType { ...Root } mutationType { ...Root } subscriptionType { ...Root } } }
fragment Root on __Type { name fields { name description type { ...Ref } args { name type { ...Ref } } } }
fragment Ref on __Type { kind name ofType { kind name ofType { kind name ofType { kind name } } } }\`;

function typeName(type) {
  if (type.kind === 'NON_NULL') return typeName(type.ofType) + '!';
  return type.kind === 'LIST' ? '[' + typeName(type.ofType) + ']' : type.name;
}

function describeField(field) {
  const line = document.createElement('p');
  const name = document.createElement('b');
  const args = field.args.map((arg) => arg.name + ': ' + typeName(arg.type)).join(', ');
  name.textContent = field.name;
  line.title = field.description ?? '';
  line.append(name, (args === '' ? '' : '(' + args + ')') + ': ' + typeName(field.type));
  return line;
}

async function loadSchema() {
  const fields = el('fields');
  if (!el('schema').open || fields.childElementCount > 0) return;
  fields.textContent = 'Loading…';
  try {
    const { data, errors } = await (await send({ query: INTROSPECTION })).json();
    if (!data) throw new Error(errors[0].message);
    fields.replaceChildren();
    for (const root of [data.__schema.queryType, data.__schema.mutationType, data.__schema.subscriptionType]) {
      if (!root) continue;
      const title = document.createElement('h3');
      title.textContent = root.name;
      fields.append(title, ...root.fields.map(describeField));
    }
  } catch (error) {
    fields.textContent = 'The schema could not be read: ' + error.message;
  }
}

// --- wiring
function useExample(index) {
  el('query').value = settings.examples[index].query;
  el('variables').value = settings.examples[index].variables;
}

settings.examples.forEach((example, index) => el('examples').append(new Option(example.name, index)));
useExample(0);
el('examples').onchange = () => useExample(Number(el('examples').value));
el('run').onclick = run;
el('stop').onclick = stop;
el('schema').ontoggle = loadSchema;
document.addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey) && !el('editor').hidden && !el('run').disabled) run();
});
addEventListener('hashchange', () => location.reload());
if (location.hash === '#editor') openEditor(false);
else openSandbox();
`;
