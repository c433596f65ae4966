// The look of the landing page: light or dark as the reader's system is. Used by landing-page only.

export const LANDING_STYLE = `
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --line: #d5dae1; --text: #16202c; --soft: #5a6675;
  --accent: #0f766e; --on-accent: #ffffff; --bad: #b42318; --field: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0f151c; --card: #161e27; --line: #2c3846; --text: #e4eaf1; --soft: #97a5b5;
    --accent: #2dd4bf; --on-accent: #06201d; --bad: #ff8f85; --field: #0f161e;
  }
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
html, body { height: 100%; margin: 0; }
body { background: var(--page); color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
code, textarea, pre, #fields { font: 13px/1.55 ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace; }
a { color: var(--accent); }
#loading { padding: 2rem; color: var(--soft); }
#sandbox { position: fixed; inset: 0; }
#leave-sandbox {
  position: fixed; right: 12px; bottom: 12px; padding: 4px 12px; border-radius: 999px; font-size: 13px;
  background: var(--card); border: 1px solid var(--line); text-decoration: none;
}
#editor { min-height: 100%; display: flex; flex-direction: column; gap: 14px; padding: 18px 22px; max-width: 1500px; margin: 0 auto; }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 14px; }
h1 { font-size: 20px; margin: 0; letter-spacing: -0.01em; }
h1 span { color: var(--accent); }
h2 { font-size: 15px; margin: 0; }
header code { color: var(--soft); }
#notice { margin: 0 0 0 auto; color: var(--soft); font-size: 13px; }
main { flex: 1; display: grid; grid-template-columns: 1fr 1fr; gap: 14px; min-height: 480px; }
section, details {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px;
  display: flex; flex-direction: column; gap: 6px; min-width: 0;
}
details { display: block; }
summary { cursor: pointer; font-weight: 600; }
.bar { display: flex; align-items: center; gap: 10px; min-height: 36px; }
.space { flex: 1; }
label { font-size: 13px; font-weight: 600; margin-top: 6px; }
.bar label { margin: 0; }
label small { font-weight: 400; color: var(--soft); margin-left: 6px; }
textarea, input, select, button {
  color: inherit; background: var(--field); border: 1px solid var(--line); border-radius: 7px; padding: 8px 10px;
}
input, select, button { font: inherit; font-size: 14px; padding: 6px 10px; }
select { min-width: 0; max-width: 100%; }
textarea { width: 100%; resize: vertical; tab-size: 2; }
#query { flex: 1; min-height: 220px; }
button { cursor: pointer; padding: 6px 16px; font-weight: 600; }
button.primary { background: var(--accent); border-color: var(--accent); color: var(--on-accent); }
button:disabled { opacity: 0.55; cursor: default; }
:is(textarea, input, select, button, a, summary, #output):focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
#status { color: var(--soft); font-size: 13px; }
#status.bad { color: var(--bad); }
#output { flex: 1 1 0; min-height: 300px; overflow: auto; border-radius: 7px; background: var(--field); border: 1px solid var(--line); }
#output pre { margin: 0; padding: 10px 12px; white-space: pre-wrap; overflow-wrap: anywhere; }
#output pre + pre { border-top: 1px solid var(--line); }
#output pre.bad { box-shadow: inset 3px 0 0 var(--bad); }
#fields { margin-top: 8px; columns: 420px 3; column-gap: 28px; }
#fields h3 { font: 600 13px/1.5 system-ui, sans-serif; margin: 10px 0 4px; color: var(--soft); break-after: avoid; }
#fields p { margin: 0 0 4px; padding-left: 1.2em; text-indent: -1.2em; overflow-wrap: anywhere; break-inside: avoid; }
#fields b { color: var(--accent); font-weight: 600; }
@media (max-width: 820px) {
  main { grid-template-columns: 1fr; }
  #notice { margin: 0; }
}
`;
