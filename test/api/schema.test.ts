// What every part of the schema owes its readers, whatever parts there are.
import {
  isEnumType,
  isInputObjectType,
  isInterfaceType,
  isIntrospectionType,
  isNonNullType,
  isObjectType,
  isSpecifiedScalarType,
  type GraphQLObjectType,
} from 'graphql';
import { expect, test } from 'vitest';
import { buildGraphqlSchema } from '../../src/resolvers/schema.js';

const schema = buildGraphqlSchema();
const types = Object.values(schema.getTypeMap()).filter(
  (type) => !isIntrospectionType(type) && !isSpecifiedScalarType(type),
);
const objects = types.filter(isObjectType);

test('everything is described', () => {
  const silent: string[] = [];
  const note = (name: string, description: string | null | undefined) => {
    if (!description) silent.push(name);
  };
  for (const type of types) {
    note(type.name, type.description);
    if (isEnumType(type)) {
      for (const value of type.getValues()) note(`${type.name}.${value.name}`, value.description);
    }
    if (isInputObjectType(type)) {
      for (const field of Object.values(type.getFields()))
        note(`${type.name}.${field.name}`, field.description);
    }
    if (!isObjectType(type) && !isInterfaceType(type)) continue;
    for (const field of Object.values(type.getFields())) {
      note(`${type.name}.${field.name}`, field.description);
      for (const arg of field.args) note(`${type.name}.${field.name}(${arg.name})`, arg.description);
    }
  }
  expect(silent).toEqual([]);
});

test('every mutation takes one input and answers with a payload of userErrors', () => {
  for (const field of Object.values(schema.getMutationType()!.getFields())) {
    expect([field.name, field.args.map(({ name }) => name)]).toEqual([field.name, ['input']]);
    expect(isNonNullType(field.args[0]!.type)).toBe(true);
    expect(isNonNullType(field.type)).toBe(true);
    const payload = schema.getType(String(field.type).replace('!', '')) as GraphQLObjectType;
    expect(payload.name).toMatch(/Payload$/);
    expect(String(payload.getFields()['userErrors']?.type)).toBe('[UserError!]!');
    expect(payload.getInterfaces().map(({ name }) => name)).toContain('Payload');
  }
});

test('every connection is a Relay connection, and every list that is one has a default length', () => {
  for (const type of objects.filter(({ name }) => name.endsWith('Connection'))) {
    const item = type.name.replace(/Connection$/, '');
    const { nodes, edges, pageInfo } = type.getFields();
    expect(String(nodes?.type)).toBe(`[${item}!]!`);
    expect(String(edges?.type)).toBe(`[${item}Edge!]!`);
    expect(String(pageInfo?.type)).toBe('PageInfo!');
  }
  for (const type of objects) {
    for (const field of Object.values(type.getFields())) {
      if (!/Connection!?$/.test(String(field.type))) continue;
      const first = field.args.find(({ name }) => name === 'first');
      expect(first?.defaultValue, `${type.name}.${field.name}`).toBeTypeOf('number');
    }
  }
});
