// The part of Shopify's Admin schema that price changes need, under Shopify's names and shapes.

import { buildSchema } from 'graphql';

export const SHOP_SCHEMA = buildSchema(/* GraphQL */ `
  "A decimal number as a string."
  scalar Money
  scalar CurrencyCode

  interface Node {
    id: ID!
  }

  type Product implements Node {
    id: ID!
  }

  type ProductVariant implements Node {
    id: ID!
    price: Money!
    product: Product!
  }

  type Shop {
    name: String!
    currencyCode: CurrencyCode!
  }

  input ProductVariantsBulkInput {
    id: ID
    price: Money
  }

  enum ProductVariantsBulkUpdateUserErrorCode {
    INVALID_INPUT
    PRODUCT_DOES_NOT_EXIST
    PRODUCT_VARIANT_DOES_NOT_EXIST
    PRODUCT_VARIANT_ID_MISSING
  }

  type ProductVariantsBulkUpdateUserError {
    field: [String!]
    message: String!
    code: ProductVariantsBulkUpdateUserErrorCode
  }

  type ProductVariantsBulkUpdatePayload {
    "The variants that were changed; null when none was."
    productVariants: [ProductVariant!]
    userErrors: [ProductVariantsBulkUpdateUserError!]!
  }

  type Query {
    shop: Shop!
    nodes(ids: [ID!]!): [Node]!
  }

  type Mutation {
    productVariantsBulkUpdate(
      productId: ID!
      variants: [ProductVariantsBulkInput!]!
      allowPartialUpdates: Boolean = false
    ): ProductVariantsBulkUpdatePayload
  }
`);
