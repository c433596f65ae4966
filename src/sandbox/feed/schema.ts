// The part of a diamond supplier's GraphQL that reading its stock needs: a token for a password, and stones
// counted and paged by price and time of change.

import { buildSchema } from 'graphql';

export const FEED_SCHEMA = buildSchema(/* GraphQL */ `
  scalar DateTime

  "Both ends belong to it."
  input FloatRange {
    from: Float
    to: Float
  }

  input TimeRange {
    from: DateTime
  }

  input DiamondQuery {
    "Dollars; an item's price is in cents."
    dollar_value: FloatRange
    updated_at: TimeRange
  }

  enum DiamondOrderType {
    createdAt
  }

  enum OrderDirection {
    ASC
  }

  input DiamondOrder {
    type: DiamondOrderType!
    direction: OrderDirection!
  }

  type Certificate {
    id: ID
    lab: String
    shape: String
    certNumber: String
    cut: String
    carats: Float
    color: String
    clarity: String
    polish: String
    symmetry: String
  }

  type Diamond {
    id: ID
    image: String
    video: String
    availability: String
    certificate: Certificate
  }

  "An offer of one stone."
  type DiamondItem {
    id: ID
    price: Float
    currency: String
    discount: Float
    updated_at: DateTime
    diamond: Diamond
  }

  type DiamondItems {
    items: [DiamondItem]!
  }

  type Session {
    token: String!
  }

  type Authenticate {
    username_and_password(username: String!, password: String!): Session
  }

  type As {
    diamonds_by_query_count(query: DiamondQuery!): Int!
    "At most 1,000 a page."
    diamonds_by_query(
      query: DiamondQuery!
      offset: Int = 0
      limit: Int = 50
      order: DiamondOrder
    ): DiamondItems!
  }

  type Query {
    authenticate: Authenticate!
    as(token: String!): As!
  }
`);
