// GraphQL enums made of the domain's own words. In the API every value is upper case; inside it stays as the
// domain and the database spell it (`queued` is QUEUED), in arguments and in results.

import { registerEnumType } from 'type-graphql';

/** Registers an enum. `values` describes each of the domain's words, so that a new one cannot be forgotten. */
export function defineEnum<Value extends string>(
  name: string,
  description: string,
  values: Readonly<Record<Value, string>>,
): Readonly<Record<string, Value>> {
  const words = Object.keys(values) as Value[];
  const members = Object.fromEntries(words.map((word) => [word.toUpperCase(), word]));
  const valuesConfig = Object.fromEntries(
    words.map((word) => [word.toUpperCase(), { description: values[word] }]),
  );
  registerEnumType(members, { name, description, valuesConfig });
  return members;
}
