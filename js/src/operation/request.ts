/** Requests of the operations, parsed strictly (section 5). */

import { InvalidInput, shown } from "../errors.ts";
import { segmentsOf } from "../key.ts";
import { isObject, type Json, JsonError, type JsonObject, parseJson } from "./json.ts";

function invalid(message: string): never {
  throw new InvalidInput("invalid_request", message);
}

/** Parse a request with the given profile. Only the named members may be present besides it. */
export function parseRequest(request: unknown, profile: string, members: readonly string[]): JsonObject {
  let parsed: Json;
  try {
    parsed = parseJson(request);
  } catch (error) {
    if (error instanceof JsonError) invalid(error.message);
    throw error;
  }
  if (!isObject(parsed)) invalid("expected an object");
  const named = text(parsed, "profile");
  if (named !== profile) throw new InvalidInput("unknown_profile", `profile: ${shown(named)} is not ${profile}`);
  checkMembers(parsed, ["profile", ...members]);
  return parsed;
}

export function checkMembers(object: JsonObject, members: readonly string[]): void {
  for (const name of Object.keys(object)) if (!members.includes(name)) invalid(`unknown member ${shown(name)}`);
}

export function text(object: JsonObject, name: string): string {
  const value = object[name];
  return typeof value === "string" ? value : invalid(`${name}: expected a string`);
}

export function object(parent: JsonObject, name: string): JsonObject {
  const value = parent[name];
  return isObject(value) ? value : invalid(`${name}: expected an object`);
}

export function integer(object: JsonObject, name: string): number {
  const value = object[name];
  return typeof value === "number" ? value : invalid(`${name}: expected an integer`);
}

export function optionalInteger(object: JsonObject, name: string): number | undefined {
  return name in object ? integer(object, name) : undefined;
}

/** Segments of a path, which may be none only if `mayBeEmpty`. */
export function segments(value: Json | undefined, name: string, mayBeEmpty = false): string[] {
  if (!Array.isArray(value) || !value.every((each) => typeof each === "string"))
    return invalid(`${name}: expected an array of strings`);
  return mayBeEmpty && value.length === 0 ? [] : segmentsOf(value);
}
