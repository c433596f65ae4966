// The shop's catalog, which is a rule rather than a list: any external id is a variant. Owns the global
// ids, which product a variant belongs to, and the price of a variant that nobody wrote.

import { createHash } from 'node:crypto';
import { faultOf } from './faults.js';

const VARIANT_GID = 'gid://shopify/ProductVariant/';
const PRODUCT_GID = 'gid://shopify/Product/';
const COMMON_PRODUCT = `${PRODUCT_GID}1`;

export function externalIdOf(variantGid: string): string | null {
  const externalId = variantGid.startsWith(VARIANT_GID) ? variantGid.slice(VARIANT_GID.length) : '';
  return externalId === '' ? null : externalId;
}

export function variantGidOf(externalId: string): string {
  return VARIANT_GID + externalId;
}

/** An id with a fault is a product of its own, so that its call fails alone; all others share one. */
export function productGidOf(externalId: string): string {
  return faultOf(externalId) === null ? COMMON_PRODUCT : PRODUCT_GID + externalId;
}

/** What a variant costs until somebody writes it: whole units, which every currency can express. */
export function listPriceOf(externalId: string): string {
  const digest = createHash('sha256').update(externalId).digest();
  return `${1 + (digest.readUInt32BE(0) % 999)}.00`;
}

/** The price that a reader sees after `written` was accepted. */
export function readBackPriceOf(externalId: string, written: string): string {
  return faultOf(externalId)?.kind === 'drift' ? drifted(written) : written;
}

function drifted(price: string): string {
  const [units = '0', ...fraction] = price.split('.');
  const other = BigInt(units) === 0n ? 1n : BigInt(units) - 1n;
  return [other.toString(), ...fraction].join('.');
}

/** Digits with an optional fraction, as Shopify writes money. */
export function isPrice(text: string): boolean {
  return /^\d{1,18}(\.\d{1,6})?$/.test(text);
}
