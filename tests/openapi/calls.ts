// Calls a gateway with types that openapi-typescript has made from its document: `node calls.js URL`. Prints a target.

import createClient from "openapi-fetch";

import type { components, paths } from "./gateway.js";

declare const process: { argv: string[] };

type Result = components["schemas"]["ResolveResult"];

const client = createClient<paths>({ baseUrl: process.argv[2] });

async function payload(bytes: string): Promise<string> {
  const { data, error } = await client.POST("/v1/cas", {
    params: { query: { codec: "raw" } },
    body: bytes,
    bodySerializer: (text: string) => text,
    headers: { "Content-Type": "application/octet-stream" },
  });
  if (error) throw new Error(error.message);
  return data.cid;
}

const cid = await payload("hello");
const created = await client.POST("/v1/roots", { body: { arcs: { "docs/readme": cid } } });
if (created.error) throw new Error(created.error.message);
const root = created.data.root;
const resolved = await client.POST("/v1/resolve", {
  body: { profile: "core.resolve/v0alpha1", root, segments: ["docs", "readme"] },
});
if (resolved.error) throw new Error(resolved.error.message);
const result: Result = resolved.data;
const differences = await client.GET("/v1/roots/{first}/diff/{second}", {
  params: { path: { first: root, second: root } },
});
if (differences.error) throw new Error(differences.error.message);
const absent = await client.POST("/v1/resolve", {
  body: { profile: "core.resolve/v0alpha1", root, segments: ["docs", "missing"] },
});
console.log(
  JSON.stringify({
    target: result.target,
    kinds: result.prooflist.steps.map((step) => step.kind),
    differences: differences.data.entries.length,
    absent: absent.error?.error,
  }),
);
