// The body of an answer, bounded: whoever sends without end must not fill our memory.

/** Null when there is more of it; the rest is not read. */
export async function readBody(response: Response, maxBytes: number): Promise<string | null> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of response.body ?? []) {
    size += part.byteLength;
    if (size > maxBytes) return null;
    parts.push(part);
  }
  return Buffer.concat(parts).toString('utf8');
}
