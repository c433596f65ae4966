// CSV (RFC 4180) that is safe to open in a spreadsheet: a text that a spreadsheet would take for a formula is
// given as text. Pure.

const FORMULA = /^[=+\-@\t\r]/;

export function csvLine(cells: readonly (string | number | null)[]): string {
  return `${cells.map(csvCell).join(',')}\r\n`;
}

function csvCell(value: string | number | null): string {
  if (value === null) return '';
  if (typeof value === 'number') return String(value);
  const text = FORMULA.test(value) ? `'${value}` : value;
  return /[",\r\n']/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
