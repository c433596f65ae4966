// Instances of the schema's classes. GraphQL tells the type of a Node or a Run by its class, so what a
// resolver returns is an instance, made of a row and whatever the row does not have by that name.

type Methods<Type> = {
  [Key in keyof Type]: Type[Key] extends (...args: never[]) => unknown ? Key : never;
}[keyof Type];

/** Every field of the class, but for its methods. */
export type FieldsOf<Type> = Omit<Type, Methods<Type>>;

export function shape<Type extends object>(type: new () => Type, fields: FieldsOf<Type>): Type {
  return Object.assign(new type(), fields);
}
